package faults

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var tuneLabs = flag.Int("tune-labs", 0, "labs of each kind for TestTune, and five times as many without a difference; 0 skips it")

// tuned is what an experiment says of a setting, the best first.
type tuned struct {
	Name  string
	Place string
}

// tuneCases are paths of which it is known which setting is best.
var tuneCases = []struct {
	name  string
	link  lab.Link
	rmem  string // of the receiver
	flags []string
	right func(best string, ranked []tuned) bool
}{
	{"a small window", lab.Link{Rate: 300e6, RTT: 100 * time.Millisecond}, "4096 65536 262144", []string{"--streams", "1,32", "--size", "10MB"},
		func(best string, _ []tuned) bool { return best == "32 streams" }},
	{"loss", lab.Link{Rate: 200e6, RTT: 50 * time.Millisecond, Loss: 0.005}, "", []string{"--streams", "2", "--congestion", "bbr,cubic", "--size", "10MB"},
		func(_ string, ranked []tuned) bool { return ranked[2] == tuned{"2 streams, cubic", "slower"} }},
	{"a full line", lab.Link{Rate: 20e6, RTT: 20 * time.Millisecond}, "", []string{"--streams", "4,64", "--size", "4MB"},
		func(_ string, ranked []tuned) bool {
			at := func(name string) int {
				return slices.IndexFunc(ranked, func(r tuned) bool { return r.Name == name })
			}
			return at("4 streams") < at("64 streams")
		}},
	{"no difference", lab.Link{Rate: 100e6, RTT: 20 * time.Millisecond}, "", []string{"--transport", "auto,tcp", "--priority", "auto,normal", "--size", "4MB", "--rounds", "3"},
		func(best string, _ []tuned) bool { return best == "defaults" }},
}

// TestTune: an experiment finds what is known of a path, in 19 of 20 labs.
func TestTune(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	}
	if *tuneLabs == 0 {
		t.Skip("-tune-labs is 0: an experiment takes half a minute")
	}
	for _, c := range tuneCases {
		t.Run(c.name, func(t *testing.T) {
			if allowed, _ := hosts.Sysctl(hosts.AllowedCC); c.name == "loss" && !strings.Contains(allowed, "bbr") {
				t.Skip("the kernel does not allow bbr to everybody")
			}
			labs := *tuneLabs
			if c.name == "no difference" {
				labs *= 5
			}
			wrong := 0
			for range labs {
				best, ranked, err := tuneIn(t, c.link, c.rmem, c.flags)
				t.Log(best, ranked, err)
				if err != nil || !c.right(best, ranked) {
					wrong++
				}
			}
			require.LessOrEqual(t, wrong, labs/20)
		})
	}
}

// tuneIn makes an experiment in a lab. Its error is that of the experiment.
func tuneIn(t *testing.T, link lab.Link, rmem string, args []string) (best string, ranked []tuned, failed error) {
	t.Helper()
	folder, err := hosts.NewFolder("fxfer-tune-", "home", "tmp", "dst")
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Remove()) }()
	binary, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(folder.Abs("fxfer"), binary, 0o755))
	box, err := lab.Start(link)
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	if rmem != "" {
		require.NoError(t, box.Right.Do(func() error { return hosts.SetSysctl("net/ipv4/tcp_rmem", rmem) }))
	}
	x := hosts.Fxfer{Folder: folder, Server: box.Right, Client: box.Left, Addr: box.Right.Addr(), Port: 7433, Home: "home"}
	require.NoError(t, x.Start(t.Context(), "--share", "dst=dst"))
	command, err := x.Cold(append([]string{"tune", "--json", x.URL("")}, args...)...)
	require.NoError(t, err)
	out, err := folder.Prepare(t.Context(), command).Output()
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s", err, out)
	}
	var report struct {
		Type    string
		Best    *json.RawMessage
		Servers []struct{ Results []tuned }
	}
	require.NoError(t, json.Unmarshal(out, &report))
	require.Equal(t, "tune", report.Type)
	ranked = report.Servers[0].Results
	best = ranked[0].Name
	if report.Best != nil && string(*report.Best) == "{}" {
		best = "defaults"
	}
	return best, ranked, nil
}
