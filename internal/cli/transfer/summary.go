package transfer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// shownFailures is the most failed entries that people see.
const shownFailures = 20

// summary describes the outcome of a transfer: what, how fast, how checked. It leaves out unknown
// figures. The verb is "sent" or "received".
func (p *humanOutput) summary(r *fxfer.Report) string {
	var b lines
	skipped, removed := term.Nonzero(r.Skipped, "%s not wanted"), term.Nonzero(r.Removed, "%s removed")
	switch {
	case r.Plan != nil:
		b.add("dry run", term.Nonzero(r.Plan.Create, "%s to create"), term.Nonzero(r.Plan.Update, "%s to update"), term.Nonzero(r.Plan.Set, "%s to get other metadata"),
			term.Nonzero(r.Removed, "%s to delete"), bytesPart(r.Plan.Bytes, "%s to send"), files(r.Same)+" unchanged", skipped)
	case r.Written+r.Sent+r.Same == 0: // folders and symlinks at most
		b.add(p.verb, fileless(r)+" in "+units.Time(r.Duration), skipped, removed)
	case r.Written+r.Sent == 0:
		b.add("unchanged", files(r.Same)+" in "+units.Time(r.Duration), skipped, removed)
	default:
		b.add(p.verb, fmt.Sprintf("%s in %s", units.Bytes(r.Written), units.Time(r.Duration)), files(r.Sent),
			term.Nonzero(r.Same, "%s unchanged"), term.Nonzero(r.Healed, "%s healed"), skipped, removed, term.Nonzero(r.Failed, "%s failed"), bytesPart(r.Resumed, "%s resumed"))
		b.add("speed", units.Rate(r.Goodput), peak(r), filesASecond(r), compressed(r), bytesPart(r.Copied, "%s from older versions"), reconnects(r))
		b.add("checked", p.checked(r))
		if p.verbose || r.RTT >= nearPath {
			b.add("line", sharing(r)...)
		}
		if p.verbose {
			b.details(r)
		}
	}
	if r.Snapshot != "" && r.Plan == nil {
		b.add("snapshot", r.Snapshot)
	}
	return b.String()
}

// nearPath is the round trip below which a path stays within a building. What its queue holds is noise.
const nearPath = time.Millisecond

// fileless says what a transfer without files brought.
func fileless(r *fxfer.Report) string {
	if r.Links == 0 {
		return "no files"
	}
	return "no files, " + units.Count(r.Links, "link", "links")
}

func files(n int64) string {
	if n == 1 {
		return "1 file"
	}
	return units.Grouped(n) + " files"
}

// filesASecond is the speed of many small files, whose bytes say little.
func filesASecond(r *fxfer.Report) string {
	if seconds := r.Duration.Seconds(); r.Sent >= 1000 && r.Written/r.Sent < 64<<10 && seconds > 0 {
		return units.Grouped(int64(float64(r.Sent)/seconds)) + " files a second"
	}
	return ""
}

// lines are lines with a label each.
type lines struct{ strings.Builder }

// add adds a line with the parts that are known.
func (b *lines) add(label string, parts ...string) {
	known := slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	if len(known) > 0 {
		fmt.Fprintf(b, "%-10s %s\n", label, strings.Join(known, ", "))
	}
}

// details adds what --verbose shows.
func (b *lines) details(r *fxfer.Report) {
	rtt, streams, resent := "", "", ""
	if r.RTT > 0 {
		rtt = "RTT " + units.Time(r.RTT)
	}
	if r.Streams > 0 {
		streams = fmt.Sprint(r.Streams)
	}
	if r.Congestion != "" { // the kernel gave figures
		resent = units.Count(r.Retransmits, "retransmit", "retransmits")
	}
	b.add("path", rtt, bytesPart(r.BDP, "BDP %s"), bytesPart(r.SendBuffer, "send buffer %s"), bytesPart(r.RecvBuffer, "receive buffer %s"))
	b.add("streams", streams, over(r), term.OneLine(r.Congestion), resent, bytesPart(r.Resent, "%s sent twice"))
	if r.TransportReason != "" {
		b.add("transport", strings.ToUpper(string(r.Transport))+": "+term.OneLine(r.TransportReason))
	}
}

// checked says how files were checked.
func (p *humanOutput) checked(r *fxfer.Report) string {
	text := "each file by its BLAKE3 digest"
	if r.Digest != "" {
		text = "BLAKE3 " + r.Digest
	}
	if p.readback {
		text += ", read back from the disk"
	}
	return text
}

func reconnects(r *fxfer.Report) string {
	if r.Reconnects == 0 {
		return ""
	}
	return units.Count(int64(r.Reconnects), "reconnect", "reconnects")
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

// printWarnings says what the target could not store, one line for each kind of problem, and that
// --delete removed nothing.
func (p *humanOutput) printWarnings(r *fxfer.Report) {
	if r == nil {
		return
	}
	if r.NotPruned {
		fmt.Fprintln(p.errs, "fxfer: warning: --delete removed nothing, because entries failed")
	}
	for _, x := range r.NotStored {
		if x.What != "owner" || p.owners {
			fmt.Fprintf(p.errs, "fxfer: warning: %s\n", term.OneLine(x.String()))
		}
	}
}

// Says reports whether the error of a transfer says what its only failure says. The failure may name
// steps before that error.
func Says(err, failure string) bool {
	return strings.Contains(err, failure) || err != "" && strings.HasSuffix(failure, err)
}

// printFailures lists the first entries that failed. It leaves out a single failure if err, the
// error of the transfer, says it already. The argument report is the file that lists all failures,
// or "".
func printFailures(w io.Writer, r *fxfer.Report, err error, report string) {
	if r == nil || r.Failed == 0 {
		return
	}
	shown := r.Failures[:min(len(r.Failures), shownFailures)]
	if r.Failed == 1 && (len(shown) == 0 || err != nil && shown[0].Err != nil && Says(err.Error(), shown[0].Failure().Error())) {
		return
	}
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
