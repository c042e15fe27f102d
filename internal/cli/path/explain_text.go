package path

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/fxfer/fxfer/internal/cli/chart"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/verdict"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/path/explain"
	"github.com/fxfer/fxfer/internal/units"
)

// explainShown is the most connections that people see. JSON has all.
const explainShown = 8

// explainShare is the least share of the time for which people see a limit.
const explainShare = 0.05

// printExplain shows a report to people: first what limits the program, then each connection.
func printExplain(w io.Writer, r *explain.Report) {
	explainSummary(r).print(w)
	fmt.Fprint(w, limitLines(r.Verdicts))
	for i := range shownConnections(r) {
		c := &r.Connections[i]
		fmt.Fprintf(w, "\n%s\n", connectionName(c))
		connectionRows(c).print(w)
		for j := range c.Verdicts {
			if j == 0 || c.Verdicts[j].Share >= explainShare {
				printVerdict(w, &c.Verdicts[j])
			}
		}
	}
	if n := len(r.Connections) - explainShown; n > 0 {
		fmt.Fprintf(w, "\n%s that moved less: see --json\n", units.Count(int64(n), "other connection", "other connections"))
	}
	if len(r.Timeline) > 1 {
		fmt.Fprintln(w)
		chart.Plot(w, "goodput", r.Timeline, func(m *explain.Moment) float64 { return m.Rate }, chart.Rate)
		chart.Plot(w, "in flight", r.Timeline, func(m *explain.Moment) float64 { return float64(m.InFlight) }, chart.Bytes)
		chart.Plot(w, "round trip", r.Timeline, func(m *explain.Moment) float64 { return m.RTT }, chart.Seconds)
		chart.Axis(w, units.Seconds(r.Timeline[len(r.Timeline)-1].At))
	}
}

func shownConnections(r *explain.Report) []explain.Connection {
	return r.Connections[:min(len(r.Connections), explainShown)]
}

// limitLines are the lines with which a transfer of fxfer names its limit.
func limitLines(all []diagnose.Verdict) string {
	if len(all) == 0 {
		return ""
	}
	text := "limit: " + term.OneLine(words.Line(&all[0])) + "\n"
	if hint := words.Hint(&all[0]); hint != "" {
		text += "hint: " + term.OneLine(hint) + "\n"
	}
	return text
}

// explainSummary says what was watched, and what it moved.
func explainSummary(r *explain.Report) (all rows) {
	all.add("watched", r.What, "for "+units.Time(r.Length))
	var sent, received int64
	for i := range r.Connections {
		sent, received = sent+r.Connections[i].Sent, received+r.Connections[i].Received
	}
	if len(r.Connections) == 0 {
		all.add("moved", "no TCP connection moved data")
	} else {
		all.add("moved", fmt.Sprintf("%s out, %s in", units.Bytes(sent), units.Bytes(received)), units.Count(int64(len(r.Connections)), "connection", "connections"))
	}
	if r.More > 0 {
		all.add("", units.Count(int64(r.More), "more connection was", "more connections were")+" not looked at")
	}
	for _, n := range r.Notes {
		all.add("note", n)
	}
	return all
}

// connectionName names both ends of a connection.
func connectionName(c *explain.Connection) string {
	end := func(a netip.AddrPort) string { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String() }
	arrow := "→"
	if !c.Sends {
		arrow = "←"
	}
	text := fmt.Sprintf("%s %s %s", end(c.Local), arrow, end(c.Remote))
	for _, part := range []string{c.Service, c.Program} {
		if part != "" {
			text += ", " + term.OneLine(part)
		}
	}
	return text
}

// connectionRows are the figures of a connection.
func connectionRows(c *explain.Connection) (all rows) {
	all.add("  moved", fmt.Sprintf("%s out, %s in", units.Bytes(c.Sent), units.Bytes(c.Received)), units.Rate(c.Goodput()))
	if len(c.Cells) == 0 {
		return all
	}
	x := diagnose.Join(c.Cells)
	rtt, resent, window := "", "", ""
	if x.Sender.MinRTT > 0 {
		rtt = fmt.Sprintf("RTT %s, at least %s", units.Time(cmp.Or(x.Sender.MeanRTT(), x.Sender.MinRTT)), units.Time(x.Sender.MinRTT))
	}
	if x.Sender.Segments > 0 {
		resent = fmt.Sprintf("%s of %s segments sent again", units.Grouped(x.Sender.Retrans), units.Grouped(x.Sender.Segments))
	}
	if x.Sender.SndWnd > 0 {
		window = "receiver's window " + units.Bytes(x.Sender.SndWnd)
	}
	all.add("  path", rtt, resent, term.OneLine(c.Control))
	if c.Packets != nil {
		all.add("  windows", window)
		all.addPackets(c.Packets)
		return all
	}
	all.add("  windows", window, buffer("send buffer", x.Sender.SndBuf), buffer("receive buffer", x.Receiver.RcvBuf))
	return all
}

// addPackets adds what only a capture shows.
func (all *rows) addPackets(p *explain.Packets) {
	if p.Opened {
		scaling := "no window scaling"
		if p.ScaleFrom >= 0 && p.ScaleTo >= 0 {
			scaling = fmt.Sprintf("window scaling (%d here, %d there)", p.ScaleFrom, p.ScaleTo)
		}
		all.add("  handshake", fmt.Sprintf("MSS %d", p.MSS), scaling, has(p.SACK, "SACK"), has(p.Timestamps, "timestamps"))
	} else {
		all.add("  handshake", "not in the capture: the scale of the windows is unknown")
	}
	if p.FirstFlight > 0 {
		all.add("  first flight", units.Count(p.FirstFlight, "segment", "segments"))
	}
	if p.Plateau > 0 && p.RTT > 0 {
		all.add("  plateau", fmt.Sprintf("%s a round trip of %s = %s", units.Bytes(p.Plateau), units.Time(p.RTT), units.Rate(float64(p.Plateau)*8/p.RTT.Seconds())))
	}
	if p.ZeroWindows > 0 {
		all.add("  zero window", units.Count(p.ZeroWindows, "time", "times"), units.Time(p.ZeroTime)+" in all")
	}
	if p.Resent()+p.Overtaken > 0 {
		all.add("  sent again", fmt.Sprintf("%d after duplicate acknowledgements, %d after a timeout, %d in vain; %d overtook others", p.Fast, p.Timeouts, p.Needless, p.Overtaken))
	}
	if p.Stalls > 0 {
		all.add("  stalls", units.Count(p.Stalls, "small write", "small writes")+" waited for an acknowledgement", fmt.Sprintf("%d of them for a delayed one", p.Delayed), units.Time(p.StallTime)+" lost")
	}
	where := "receiver"
	if p.AtSender {
		where = "sender"
	}
	offloaded, missed := "", ""
	if p.Offloaded > 0 {
		offloaded = fmt.Sprintf("%d of %d segments are larger than the MSS (offloading)", p.Offloaded, p.Segments)
	}
	if p.Missed > 0 {
		missed = units.Bytes(p.Missed) + " are missing from it"
	}
	all.add("  capture", "made at the "+where, offloaded, missed)
}

func has(on bool, what string) string {
	if on {
		return what
	}
	return "no " + what
}

func buffer(name string, size int64) string {
	if size == 0 {
		return ""
	}
	return name + " " + units.Bytes(size)
}

// printVerdict shows all that is known about one limit.
func printVerdict(w io.Writer, v *diagnose.Verdict) {
	fmt.Fprintf(w, "%5.0f %%  %s, %s\n", v.Share*100, term.OneLine(words.Name(v)), units.Time(v.Time))
	indent := strings.Repeat(" ", 9)
	say := func(text string) {
		for _, line := range term.Wrap(term.OneLine(text), 80-len(indent)) {
			fmt.Fprintf(w, "%s%s\n", indent, line)
		}
	}
	for _, e := range words.Evidence(v) {
		say(e)
	}
	for i := range v.Remedies {
		say("remedy: " + words.Remedy(&v.Remedies[i], v.Host) + words.Expected(&v.Remedies[i]))
	}
}

type explainJSON struct {
	Type        string                  `json:"type"`
	What        string                  `json:"what"`
	Seconds     float64                 `json:"seconds"`
	More        int                     `json:"connections_not_looked_at"`
	Notes       []string                `json:"notes"`
	Limits      []verdict.JSON          `json:"limits"`
	Connections []explainConnectionJSON `json:"connections"`
	Timeline    []explainMomentJSON     `json:"timeline"`
}

type explainConnectionJSON struct {
	Local    netip.AddrPort   `json:"local"`
	Remote   netip.AddrPort   `json:"remote"`
	Program  string           `json:"program,omitempty"`
	Service  string           `json:"service,omitempty"`
	Sends    bool             `json:"sends"`
	Sent     int64            `json:"sent_bytes"`
	Received int64            `json:"received_bytes"`
	Goodput  float64          `json:"goodput_bits_per_second"`
	Control  string           `json:"congestion_control,omitempty"`
	Packets  *explainPackets  `json:"packets,omitempty"`
	Limits   []verdict.JSON   `json:"limits"`
	Timeline []verdict.Moment `json:"timeline"`
}

// explainPackets are the members of a connection in a capture.
type explainPackets struct {
	Opened      bool    `json:"handshake_seen"`
	MSS         int64   `json:"mss"`
	ScaleFrom   int     `json:"window_scale_of_sender"`
	ScaleTo     int     `json:"window_scale_of_receiver"`
	SACK        bool    `json:"sack"`
	Timestamps  bool    `json:"timestamps"`
	AtSender    bool    `json:"captured_at_sender"`
	RTT         float64 `json:"least_rtt_seconds"`
	FirstFlight int64   `json:"first_flight_segments"`
	Plateau     int64   `json:"plateau_bytes"`
	ZeroWindows int64   `json:"zero_windows"`
	ZeroTime    float64 `json:"zero_window_seconds"`
	Segments    int64   `json:"segments"`
	Offloaded   int64   `json:"segments_larger_than_mss"`
	Fast        int64   `json:"sent_again_after_duplicates"`
	Timeouts    int64   `json:"sent_again_after_timeout"`
	Needless    int64   `json:"sent_again_in_vain"`
	Overtaken   int64   `json:"segments_overtaken"`
	Missed      int64   `json:"bytes_not_captured"`
	Stalls      int64   `json:"stalls"`
	Delayed     int64   `json:"stalls_with_delayed_ack"`
	StallTime   float64 `json:"stall_seconds"`
}

func packetsJSON(p *explain.Packets) *explainPackets {
	if p == nil {
		return nil
	}
	return &explainPackets{
		p.Opened, p.MSS, p.ScaleFrom, p.ScaleTo, p.SACK, p.Timestamps, p.AtSender, p.RTT.Seconds(), p.FirstFlight, p.Plateau,
		p.ZeroWindows, p.ZeroTime.Seconds(), p.Segments, p.Offloaded, p.Fast, p.Timeouts, p.Needless, p.Overtaken, p.Missed, p.Stalls, p.Delayed, p.StallTime.Seconds(),
	}
}

type explainMomentJSON struct {
	At       float64 `json:"at_seconds"`
	Rate     float64 `json:"goodput_bits_per_second"`
	InFlight int64   `json:"in_flight_bytes"`
	RTT      float64 `json:"rtt_seconds"`
	Resent   int64   `json:"segments_sent_again"`
}

// jsonExplain is a report for programs.
func jsonExplain(r *explain.Report) *explainJSON {
	out := &explainJSON{
		Type: "explain", What: r.What, Seconds: r.Length.Seconds(), More: r.More, Notes: append([]string{}, r.Notes...),
		Limits: verdict.JSONOf(r.Verdicts), Connections: []explainConnectionJSON{}, Timeline: []explainMomentJSON{},
	}
	for i := range r.Connections {
		c := &r.Connections[i]
		out.Connections = append(out.Connections, explainConnectionJSON{
			c.Local, c.Remote, c.Program, c.Service, c.Sends, c.Sent, c.Received, c.Goodput(), c.Control, packetsJSON(c.Packets), verdict.JSONOf(c.Verdicts), verdict.Timeline(c.Cells),
		})
	}
	for _, m := range r.Timeline {
		out.Timeline = append(out.Timeline, explainMomentJSON(m))
	}
	return out
}
