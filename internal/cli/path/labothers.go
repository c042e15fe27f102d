package path

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/units"
)

// parseCross reads a value of --cross: cubic:N, bbr:N or udp:RATE, and after commas up or down,
// and the seconds of its beginning and end.
func parseCross(s string) (c lab.Cross, err error) {
	fields := strings.Split(s, ",")
	kind, amount, ok := strings.Cut(fields[0], ":")
	switch {
	case !ok || kind == "":
		return c, fmt.Errorf("%q is not cubic:N, bbr:N or udp:RATE", s)
	case kind == "udp":
		if c.Rate, err = units.ParseRate(amount); err != nil {
			return c, err
		}
	default:
		c.Congestion = kind
		if c.Flows, err = strconv.Atoi(amount); err != nil || c.Flows < 1 || c.Flows > 1000 {
			return c, fmt.Errorf("%q is not a number of flows from 1 to 1000", amount)
		}
	}
	var times []time.Duration
	for _, f := range fields[1:] {
		switch f {
		case "up":
			c.Direction = lab.Both // as without a word: Cross sends from left to right
		case "down":
			c.Direction = lab.RightToLeft
		default:
			seconds, err := strconv.ParseFloat(f, 64)
			if err != nil || !(seconds >= 0 && seconds <= 1e6) {
				return c, fmt.Errorf("%q is neither up nor down nor a number of seconds", f)
			}
			times = append(times, time.Duration(seconds*float64(time.Second)))
		}
	}
	switch {
	case len(times) > 2:
		return c, errors.New("it has one beginning and one end")
	case len(times) == 2 && times[1] <= times[0]:
		return c, fmt.Errorf("it would end at %v and begin at %v", times[1], times[0])
	case len(times) == 2:
		c.To = times[1]
		fallthrough
	case len(times) == 1:
		c.From = times[0]
	}
	return c, nil
}

// labOthers are the others on the line of "lab run".
type labOthers struct {
	ping    *lab.Ping
	traffic []*lab.Traffic
}

// start starts the cross traffic, and the ping if it is wanted. If it fails, some may have started.
func (o *labOthers) start(l *lab.Lab, crosses []lab.Cross, ping bool) (err error) {
	if ping {
		if o.ping, err = l.StartPing(); err != nil {
			return err
		}
	}
	for _, c := range crosses {
		t, err := l.StartCross(c)
		if errors.Is(err, fs.ErrNotExist) {
			return exit.Usage("`sysctl net.ipv4.tcp_available_congestion_control` lists those that are loaded",
				"--cross: this kernel has no congestion control %q", c.Congestion)
		}
		if err != nil {
			return err
		}
		o.traffic = append(o.traffic, t)
	}
	return nil
}

// stop ends the others, and writes what they got into s. names are the values of --cross.
func (o *labOthers) stop(names []string, s *labSummary) {
	for i, t := range o.traffic {
		s.Cross = append(s.Cross, newCrossSummary(names[i], t.Stop()))
	}
	if o.ping != nil {
		s.Ping = newPingSummary(o.ping.Stop())
	}
}

// labSummary is what "lab run --json" writes.
type labSummary struct {
	Seconds     float64          `json:"seconds"`
	LeftToRight directionSummary `json:"left_to_right"`
	RightToLeft directionSummary `json:"right_to_left"`
	Legs        []legSummary     `json:"further_legs,omitempty"` // after the first, from left to right
	Cross       []crossSummary   `json:"cross,omitempty"`
	Ping        *pingSummary     `json:"ping,omitempty"`
}

type legSummary struct {
	LeftToRight directionSummary `json:"left_to_right"`
	RightToLeft directionSummary `json:"right_to_left"`
}

type directionSummary struct {
	Sent             int64        `json:"packets_sent"`
	Delivered        int64        `json:"packets_delivered"`
	Bytes            int64        `json:"bytes_delivered"`
	Lost             int64        `json:"packets_lost"` // on the line
	DroppedByQueue   int64        `json:"packets_dropped_by_queue"`
	DroppedByCoDel   int64        `json:"packets_dropped_by_codel"`
	DroppedByPolicer int64        `json:"packets_dropped_by_policer"`
	Command          classSummary `json:"command"`
	Others           classSummary `json:"others"`
}

// classSummary counts the packets of one class before the line: dropped by queue, CoDel or policer.
type classSummary struct {
	Sent    int64   `json:"packets_sent"`
	Dropped int64   `json:"packets_dropped"`
	Share   float64 `json:"dropped_share"`
}

type crossSummary struct {
	Name      string  `json:"cross"`
	Start     float64 `json:"start_seconds"`
	Length    float64 `json:"seconds"`
	Goodput   float64 `json:"goodput_bits_per_second"`
	PerFlow   []int64 `json:"flows_bytes"`
	PerSecond []int64 `json:"bytes_per_second"` // of each second since the command began
	Sent      int64   `json:"packets_sent,omitempty"`
	Lost      int64   `json:"packets_lost"`
	Share     float64 `json:"lost_share"`
	Error     string  `json:"error,omitempty"`
}

type pingSummary struct {
	Answered int          `json:"answered"`
	Lost     int          `json:"lost"`
	Median   float64      `json:"added_median_seconds"`
	P99      float64      `json:"added_p99_seconds"`
	Max      float64      `json:"added_max_seconds"`
	Samples  [][2]float64 `json:"samples"` // seconds since the command began, and seconds added
}

func newDirectionSummary(c lab.Counters) directionSummary {
	class := func(sent, dropped int64) classSummary {
		return classSummary{sent, dropped, float64(dropped) / float64(max(1, sent))}
	}
	return directionSummary{
		Sent: c.Sent, Delivered: c.Delivered, Bytes: c.Bytes, Lost: c.Lost,
		DroppedByQueue: c.Dropped - c.Early - c.Policed, DroppedByCoDel: c.Early, DroppedByPolicer: c.Policed,
		Command: class(c.Sent-c.OthersSent, c.Dropped-c.OthersDropped), Others: class(c.OthersSent, c.OthersDropped),
	}
}

func newCrossSummary(name string, r *lab.CrossReport) crossSummary {
	s := crossSummary{
		Name: name, Start: r.From.Seconds(), Length: r.Ran.Seconds(), Goodput: r.Goodput(), PerFlow: r.PerFlow, PerSecond: r.PerSecond,
		Sent: r.Sent, Lost: r.Lost, Share: float64(r.Lost) / float64(max(1, r.Sent)),
	}
	if r.Err != nil {
		s.Error = r.Err.Error()
	}
	return s
}

func newPingSummary(r *lab.PingReport) *pingSummary {
	s := &pingSummary{
		Answered: len(r.Trips), Lost: r.Lost, Samples: make([][2]float64, len(r.Trips)),
		Median: r.Added(0.5).Seconds(), P99: r.Added(0.99).Seconds(), Max: r.Added(1).Seconds(),
	}
	for i, t := range r.Trips {
		s.Samples[i] = [2]float64{t.At.Seconds(), t.Added.Seconds()}
	}
	return s
}

// print writes the others' part of the summary in lines for people.
func (s *labSummary) print(w io.Writer) {
	for _, c := range s.Cross {
		fmt.Fprintf(w, "fxfer lab: %s got %s for %s", c.Name, units.Rate(c.Goodput), units.Seconds(c.Length))
		if c.Sent > 0 {
			fmt.Fprintf(w, ", %d of %d packets lost (%.3g%%)", c.Lost, c.Sent, 100*c.Share)
		}
		if c.Error != "" {
			fmt.Fprintf(w, ", %s", c.Error)
		}
		fmt.Fprintln(w)
	}
	if p := s.Ping; p != nil {
		fmt.Fprintf(w, "fxfer lab: ping: %.2f ms added (median), %.2f ms (99th percentile), %.2f ms at most; %d of %d lost\n",
			p.Median*1e3, p.P99*1e3, p.Max*1e3, p.Lost, p.Lost+p.Answered)
	}
}

// write stores the summary in a file.
func (s *labSummary) write(file string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o666)
}
