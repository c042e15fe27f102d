package lab

import (
	"fmt"
	"strings"
	"time"
)

// Preset is a line as many people have it. Left is the customer, and right is the network.
type Preset struct {
	Name   string
	What   string
	Link   Link
	Source string // where the figures come from
}

// Presets are the lines that the lab knows by name. Source names the standard or the measurement
// behind a figure. All other figures are round values of ours for an ordinary day: RTT, jitter and
// queues differ from line to line.
var Presets = []Preset{
	{
		"modem56", "telephone modem",
		Link{Rate: 33_600, RateBack: 50_000, RTT: 150 * time.Millisecond, Jitter: 10 * time.Millisecond, Buffer: 8 << 10, MTU: 576},
		"rates: ITU-T V.90, down as on most lines; MTU: RFC 791",
	},
	{
		"isdn", "one ISDN channel",
		Link{Rate: 64_000, RTT: 40 * time.Millisecond, Buffer: 16 << 10, MTU: 1500},
		"rate: ITU-T I.430",
	},
	{
		"adsl", "ADSL2+ with interleaving and PPPoE",
		Link{Rate: 1e6, RateBack: 16e6, RTT: 30 * time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.0001, Buffer: 64 << 10, MTU: 1492},
		"rates: ITU-T G.992.5, as at 1 to 2 km; MTU: RFC 2516",
	},
	{
		"cable", "television cable, DOCSIS 3.0",
		Link{Rate: 30e6, RateBack: 300e6, RTT: 20 * time.Millisecond, Jitter: 4 * time.Millisecond, Buffer: 512 << 10, MTU: 1500},
		"rates: a common tariff",
	},
	{
		"lte", "mobile network, good reception",
		Link{Rate: 15e6, RateBack: 40e6, RTT: 50 * time.Millisecond, Jitter: 10 * time.Millisecond, Buffer: 1 << 20, MTU: 1358},
		"MTU: 3GPP TS 23.060 annex C; no loss: the radio link repeats",
	},
	{
		"leo", "satellites in low orbit",
		Link{Rate: 15e6, RateBack: 150e6, RTT: 40 * time.Millisecond, Jitter: 15 * time.Millisecond, Loss: 0.004, Buffer: 1 << 20, MTU: 1500},
		"loss: Starlink as measured by Michel et al., IMC 2022",
	},
	{
		"geo", "geostationary satellite",
		Link{Rate: 5e6, RateBack: 50e6, RTT: 600 * time.Millisecond, Jitter: 10 * time.Millisecond, Loss: 0.0001, BufferBDP: 1, MTU: 1500},
		"RTT: RFC 2488 section 2, up to 558 ms in space, and the ground",
	},
	{
		"dsl-policed", "VDSL2 whose provider drops what exceeds the tariff",
		Link{Rate: 40e6, RateBack: 100e6, RTT: 20 * time.Millisecond, Jitter: time.Millisecond, Buffer: 256 << 10, MTU: 1492, Police: 50e6, PoliceBurst: 128 << 10},
		"rates: ITU-T G.993.2, a tariff of 50 on a line of 100; MTU: RFC 2516",
	},
}

// PresetLink returns the link of a preset.
func PresetLink(name string) (Link, error) {
	var names []string
	for _, p := range Presets {
		if p.Name == name {
			return p.Link, nil
		}
		names = append(names, p.Name)
	}
	return Link{}, fmt.Errorf("there is no line %q, only %s", name, strings.Join(names, ", "))
}
