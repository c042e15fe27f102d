package transfer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// shownFailures is the most failed entries that people see.
const shownFailures = 20

// summary describes the outcome of a transfer in a few lines. It leaves out unknown figures. The
// verb is "sent" or "received".
func summary(verb string, r *fxfer.Report) (text string) {
	var b strings.Builder
	line := func(label string, parts ...string) {
		var known []string
		for _, p := range parts {
			if p != "" {
				known = append(known, p)
			}
		}
		if len(known) > 0 {
			fmt.Fprintf(&b, "%-10s %s\n", label, strings.Join(known, ", "))
		}
	}
	if r.Snapshot != "" {
		defer func() { text += fmt.Sprintf("%-10s %s\n", "snapshot", r.Snapshot) }()
	}
	skipped, removed := term.Nonzero(r.Skipped, "%d not wanted"), term.Nonzero(r.Removed, "%d removed")
	switch {
	case r.Plan != nil:
		line("dry run", term.Nonzero(r.Plan.Create, "%d to create"), term.Nonzero(r.Plan.Update, "%d to update"), term.Nonzero(r.Plan.Set, "%d to get other metadata"),
			term.Nonzero(r.Removed, "%d to delete"), bytesPart(r.Plan.Bytes, "%s to send"), units.Count(r.Same, "file", "files")+" unchanged", skipped)
		return b.String()
	case r.Written+r.Sent+r.Same == 0: // folders and symlinks at most
		line(verb, "no files in "+units.Time(r.Duration), skipped, removed)
		return b.String()
	case r.Written+r.Sent == 0:
		line("unchanged", units.Count(r.Same, "file", "files")+" in "+units.Time(r.Duration), skipped, removed)
		return b.String()
	}
	line(verb, fmt.Sprintf("%s in %s", units.Bytes(r.Written), units.Time(r.Duration)), units.Rate(r.Goodput), peak(r), compressed(r), bytesPart(r.Copied, "%s from older versions"))
	if r.Files != 1 || r.Failed > 0 || r.Resumed > 0 || r.Resent > 0 || r.Removed > 0 {
		line("files", fmt.Sprintf("%d %s", r.Sent, verb), term.Nonzero(r.Same, "%d unchanged"), term.Nonzero(r.Healed, "%d healed"), skipped, removed, term.Nonzero(r.Failed, "%d failed"),
			bytesPart(r.Resumed, "%s resumed"), bytesPart(r.Resent, "%s sent twice"))
	}
	rtt := ""
	if r.RTT > 0 {
		rtt = "RTT " + units.Time(r.RTT)
	}
	line("path", rtt, bytesPart(r.BDP, "BDP %s"), bytesPart(r.SendBuffer, "send buffer %s"), bytesPart(r.RecvBuffer, "receive buffer %s"))
	streams, resent, reconnects := "", "", ""
	if r.Streams > 0 {
		streams = fmt.Sprint(r.Streams)
	}
	if r.Congestion != "" { // the kernel gave figures
		resent = units.Count(r.Retransmits, "retransmit", "retransmits")
	}
	if r.Reconnects > 0 {
		reconnects = units.Count(int64(r.Reconnects), "reconnect", "reconnects")
	}
	line("streams", streams, over(r), term.OneLine(r.Congestion), resent, reconnects)
	line("line", sharing(r)...)
	for _, c := range r.Changes {
		line("priority", c.String())
	}
	if r.TransportReason != "" {
		line("transport", strings.ToUpper(string(r.Transport))+": "+term.OneLine(r.TransportReason))
	}
	line("BLAKE3", r.Digest)
	return b.String()
}

// sharing says how the transfer shared the line: its priority unless it is normal, what it gave
// away, the delay that it added, and to what segments were lost.
func sharing(r *fxfer.Report) []string {
	s := &r.Sharing
	if s.Priority == "" {
		return nil
	}
	timed := func(d time.Duration, format string) string {
		if d < time.Second {
			return ""
		}
		return fmt.Sprintf(format, units.Time(d))
	}
	priority, queue := "", ""
	if s.Priority != fxfer.PriorityNormal {
		priority = "priority " + string(s.Priority)
	}
	if s.QueueMost >= time.Millisecond {
		queue = fmt.Sprintf("added delay %s, at most %s", units.Time(s.Queue), units.Time(s.QueueMost))
	}
	return []string{
		priority, timed(s.Shared, "shared with others for %s"), timed(s.Yielded, "yielded to others for %s"), queue, losses(s),
	}
}

// losses says what the segments were lost to that were sent again.
func losses(s *fxfer.Sharing) string {
	var causes []string
	for _, c := range []struct {
		segments int64
		cause    string
	}{{s.LostOwn, "own queue"}, {s.LostOthers, "others' queue"}, {s.LostLine, "line"}, {s.Spurious, "sent in vain"}} {
		if c.segments > 0 {
			causes = append(causes, fmt.Sprintf("%s %d", c.cause, c.segments))
		}
	}
	if causes == nil {
		return ""
	}
	return "sent again: " + strings.Join(causes, ", ")
}

// over names the transport if it is not TCP.
func over(r *fxfer.Report) string {
	if r.Transport != fxfer.TransportQUIC {
		return ""
	}
	return "over " + units.Count(int64(r.Connections), "QUIC connection", "QUIC connections")
}

// compressed says how much compression saved, if it saved something.
func compressed(r *fxfer.Report) string {
	if r.Coded == 0 || r.Raw < r.Coded+r.Coded/20 {
		return ""
	}
	return fmt.Sprintf("compressed %.1f×", float64(r.Raw)/float64(r.Coded))
}

// peak returns the highest goodput if it differs from the mean.
func peak(r *fxfer.Report) string {
	if r.Peak <= r.Goodput*1.02 {
		return ""
	}
	return "peak " + units.Rate(r.Peak)
}

func bytesPart(n int64, format string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, units.Bytes(n))
}

// printWarnings says what the target could not store, one line for each kind of problem.
func printWarnings(w io.Writer, r *fxfer.Report) {
	if r == nil {
		return
	}
	for i := range r.NotStored {
		x := &r.NotStored[i]
		first := "of"
		if x.Count > 1 {
			first = fmt.Sprintf("of %d entries, first of", x.Count)
		}
		fmt.Fprintf(w, "fxfer: warning: the target could not store the %s %s %s: %s\n",
			term.OneLine(x.What), first, term.OneLine(x.Path), term.OneLine(x.Text))
	}
}

// printFailures lists the first entries that failed. It leaves out a single failure, because the
// error says it already. The argument report is the file that lists all failures, or "".
func printFailures(w io.Writer, r *fxfer.Report, report string) {
	if r == nil || r.Failed < 2 {
		return
	}
	shown := r.Failures[:min(len(r.Failures), shownFailures)]
	for i := range shown {
		fmt.Fprintf(w, "fxfer: failed: %s\n", term.OneLine(shown[i].Failure().Error()))
	}
	if more := r.Failed - int64(len(shown)); more > 0 {
		where := "--report FILE lists all"
		if report != "" {
			where = term.OneLine(report) + " lists all"
		}
		fmt.Fprintf(w, "fxfer: failed: %d more: %s\n", more, where)
	}
}
