package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var (
	only   = flag.String("faults", "", "only the faults whose name matches this `regexp`; \"\" is a short selection")
	trials = flag.Int("trials", 1, "trials of each fault, that send and get in turn")
	report = flag.String("report", "", "write the matrix to this `file`")
	kept   = flag.String("results", "", "append the results to this `file`, and report all that it holds: a matrix may be made in several runs, those of other tests with it")
	atOnce = flag.Int("at-once", 5, "trials that run at the same time")
)

// bulk is how much a trial transfers, and when its fault comes.
type bulk struct {
	big, other int64         // bytes of the big file and of another, beside 20 small ones
	latest     time.Duration // after the first MiB
}

// whole is what the report is about. A run without -faults moves half of it.
var (
	whole = bulk{26 << 20, 8 << 20, 1500 * time.Millisecond}
	half  = bulk{12 << 20, 3 << 20, 600 * time.Millisecond}
)

// short are the faults that a run without -faults tries, because they take little time.
var short = []string{"kill receiver", "link down 2 s", "stream black hole", "forged segments", "EIO in fsync", "source replaced before resume"}

// TestMatrix injects one fault into each transfer. The target is never wrong, and nothing hangs.
func TestMatrix(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as another user on a lab's hosts, and to mount")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	probe, err := lab.Start(lab.Link{Rate: lineRate})
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, probe.Close())
	pattern, err := regexp.Compile(*only)
	require.NoError(t, err)

	folder, err := hosts.NewFolder("fxfer-faults-", "home", "tmp", "src", "src/small")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Remove()) })
	require.NoError(t, folder.Install(t.Context(), program, "fxfer"))
	size := whole
	if *only == "" {
		size = half
	}
	require.NoError(t, folder.Fill(t.Context(), "src/"+bigFile, size.big, 1))
	require.NoError(t, folder.Fill(t.Context(), "src/b", size.other, 2))
	for i := range 20 {
		require.NoError(t, folder.Fill(t.Context(), fmt.Sprintf("src/small/%02d", i), 200_000, byte(3+i)))
	}
	b := &bench{folder: folder, size: size, next: make(chan int, 1)}
	b.next <- 0

	first := *seed
	t.Logf("seeds %d to %d", first, first+uint64(*trials)-1)
	slots := make(chan struct{}, *atOnce)
	var mu sync.Mutex
	var results []result
	var all sync.WaitGroup
	for n := range *trials {
		for i := range faults {
			f := &faults[i]
			if *only == "" && !slices.Contains(short, f.name) || !pattern.MatchString(f.name) {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				s := first + uint64(n)
				r := b.try(t.Context(), f, s)
				r.Fault, r.Seed, r.Problem = f.name, s, r.problem(f)
				verb := "get"
				if r.Push {
					verb = "send"
				}
				t.Logf("%s (%s, seed %d): %s in %.1f s, recovered in %.1f s, %s", f.name, verb, s, r.Outcome, r.Took.Seconds(), r.Recover.Seconds(), r.Said)
				if r.Problem != "" {
					t.Errorf("%s (%s, seed %d): %s", f.name, verb, s, r.Problem)
				}
				mu.Lock()
				defer mu.Unlock()
				results = append(results, r)
				require.NoError(t, keep(r))
			})
		}
	}
	all.Wait()
	if *report == "" {
		return
	}
	var rows []row
	if *kept != "" {
		results, rows, err = allKept()
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(*report, []byte(matrix(results)+tables(rows)), 0o644))
}

// row is a line in a report table of a test other than TestMatrix. The last row of a table with the
// same first cell counts.
type row struct {
	Table string
	Cells []string
}

// otherTables are the tables of other tests.
var otherTables = []struct{ name, title, text, head string }{
	{"kills", "Kills", "A process got SIGKILL, the client's or the server's, sometimes several times in a row, at a random moment between the first data and the end of the " +
		"command. No name ever led to anything but the old or the new content, the same command then succeeded with exact files, and `fxfer partial rm` left " +
		"nothing behind. " +
		"`go test ./tests/faults -run TestKillPoints -points 120`", "transfer | kills of the server | of the client | came too late, not counted"},
	{"power", "Power cuts", "ptrace(2) records what a receiver does to its disk. The test replays that up to a random point, with un-synced operations dropped, torn at sectors and " +
		"reordered, and runs the same command again on the result. A name never led to anything but the old or the new content, at the end everything was " +
		"durable, and each end was exact. " +
		"`go test ./tests/faults -run TestPowerLoss -cuts 300`", "transfer, --sync | operations recorded | syncs among them | cuts"},
	{"soak", "Soak", "Three clients send, get and verify files, folders and streams through one server. Meanwhile the test kills and stops them, and resets, stalls and " +
		"forgets their connections: the connections of all three that go through the same relay. Transfers that try again have to succeed. " +
		"`make soak`", "what the server holds | threads | goroutines | descriptors | memory | partial files"},
	{"soaked", "", "", "what happened to a transfer | exact | killed | ended with an error: streams and verify, which do not try again"},
}

// tables renders the tables of other tests.
func tables(rows []row) string {
	var b strings.Builder
	for _, table := range otherTables {
		var lines []string
		seen := make(map[string]int)
		for _, r := range rows {
			if r.Table != table.name {
				continue
			}
			line := "| " + strings.Join(r.Cells, " | ") + " |\n"
			if i, again := seen[r.Cells[0]]; again {
				lines[i] = line
				continue
			}
			seen[r.Cells[0]] = len(lines)
			lines = append(lines, line)
		}
		if len(lines) == 0 {
			continue
		}
		if table.title != "" {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", table.title, table.text)
		}
		fmt.Fprintf(&b, "\n| %s |\n|%s\n%s", table.head, strings.Repeat("---|", strings.Count(table.head, "|")+1), strings.Join(lines, ""))
	}
	return b.String()
}

// keepRow appends a row to the file of -results, if there is one.
func keepRow(t *testing.T, table string, cells ...any) {
	r := row{Table: table}
	for _, c := range cells {
		r.Cells = append(r.Cells, fmt.Sprint(c))
	}
	require.NoError(t, keep(r))
}

// keep appends a result or a row to the file of -results, if there is one.
func keep(r any) error {
	if *kept == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(*kept, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// allKept reads the file of -results. If a fault was tried more than once with one seed, the last
// result counts.
func allKept() (all []result, rows []row, err error) {
	text, err := os.ReadFile(*kept)
	if err != nil {
		return nil, nil, err
	}
	type trial struct {
		fault string
		seed  uint64
	}
	last := make(map[trial]int)
	for line := range bytes.Lines(text) {
		var r result
		var other row
		if err := errors.Join(json.Unmarshal(line, &r), json.Unmarshal(line, &other)); err != nil {
			return nil, nil, err
		}
		if other.Table != "" {
			rows = append(rows, other)
			continue
		}
		if i, again := last[trial{r.Fault, r.Seed}]; again {
			all[i] = r
			continue
		}
		last[trial{r.Fault, r.Seed}] = len(all)
		all = append(all, r)
	}
	return all, rows, nil
}

// problem says what is wrong with a result, or "".
func (r *result) problem(f *fault) string {
	var p []string
	if r.Hung {
		p = append(p, fmt.Sprintf("not over after %v", hangs+f.lasts))
	}
	if r.Wrong+r.Partial > 0 {
		p = append(p, fmt.Sprintf("%d wrong files, %d of them before the end", r.Wrong, r.Partial))
	}
	if r.Left > 0 {
		p = append(p, fmt.Sprintf("%d names are left behind", r.Left))
	}
	if r.err != nil {
		p = append(p, r.err.Error())
	}
	return strings.Join(p, "; ")
}

// matrix renders the report about trials.
func matrix(all []result) string {
	var wrong, partial, hung, broken, kinds int
	var lines strings.Builder
	results := make(map[string][]result)
	usual := map[bool]int64{}
	seeds := [2]uint64{math.MaxUint64, 0}
	for _, r := range all {
		results[r.Fault] = append(results[r.Fault], r)
		seeds[0], seeds[1] = min(seeds[0], r.Seed), max(seeds[1], r.Seed)
	}
	for _, push := range []bool{true, false} {
		var n []int64
		for _, r := range results["none"] {
			if r.Push == push && r.Problem == "" {
				n = append(n, r.Payload)
			}
		}
		usual[push] = middle(n)
	}
	for _, f := range faults {
		rs := results[f.name]
		if len(rs) == 0 {
			continue
		}
		if f.do != nil {
			kinds++
		}
		outcomes := make(map[outcome]int)
		said := make(map[string]int)
		var recover, told, took []time.Duration
		var more []int64
		row := [4]int{}
		for _, r := range rs {
			outcomes[r.Outcome]++
			if r.Said != "" {
				said[r.Said]++
			}
			if r.Outcome != missed && f.do != nil {
				recover = append(recover, r.Recover)
			}
			took = append(took, r.Took)
			if f.silent && r.Told > 0 {
				told = append(told, r.Told)
			}
			if usual[r.Push] > 0 {
				more = append(more, max(0, r.Payload-usual[r.Push]))
			}
			row[0] += r.Wrong
			row[1] += r.Partial
			if r.Hung {
				row[2]++
			}
			if r.Problem != "" {
				row[3]++
			}
		}
		wrong, partial, hung, broken = wrong+row[0], partial+row[1], hung+row[2], broken+row[3]
		var ends []string
		for _, o := range []outcome{byItself, again, missed, ""} {
			if n := outcomes[o]; n > 0 {
				ends = append(ends, fmt.Sprintf("%d %s", n, cmp.Or(string(o), "neither")))
			}
		}
		resent := "–"
		if len(more) > 0 && !f.mixed && f.name != "source replaced before resume" {
			resent = fmt.Sprintf("%.1f (%.1f)", float64(middle(more))/1e6, float64(slices.Max(more))/1e6)
		}
		message := "–"
		if len(said) > 0 {
			message = slices.MaxFunc(slices.Collect(maps.Keys(said)), func(a, b string) int { return cmp.Or(said[a]-said[b], strings.Compare(a, b)) })
			message = "`" + message + "`"
		}
		fmt.Fprintf(&lines, "| %s | %s | %d | %s | %s | %s | %s | %s | %d | %d | %d | %s |\n",
			f.name, f.what, len(rs), strings.Join(ends, ", "), seconds(took), seconds(recover), resent, seconds(told), row[0], row[1], row[2], message)
	}
	return fmt.Sprintf(`# What fxfer survives

Each run is one transfer of 22 files, 38 MiB in all, between two hosts over an emulated line of
%d Mbit/s with a round trip of %v. Processes, sockets and files are real. At a random moment, up to
1.5 s after the first MiB, one bad thing happens. Runs send and get in turn, with
`+"`--retry-for %v`"+`, or that much more than the fault lasts. If the command was killed or failed, the test
mends what was broken and runs the same command again. Then it compares the trees by BLAKE3 digests.

- *outcome*: %s means that the first command succeeded. %s means that it was
  killed, or failed with the message shown, and that the same command then succeeded. %s means
  that the transfer was over before the fault.
- *took*: the whole time, with the second command if there was one. Median and, in brackets, the
  largest, in seconds. Runs shared %d processors with others.
- *recovered*: from the end of the fault, or the start of the second command, until another MiB had
  reached the receiver or everything was over. Median (largest), in seconds.
- *sent again*: what reached the receiver beyond a transfer without fault, headers included. Median
  (largest), in MB.
- *reported after*: from the begin of the fault, or the last data after it, until the command
  reported that the other side is silent, or tried again, for faults that it has to report. Median
  (largest), in seconds.
- *wrong*: files whose content is not the source's at the end. *Partial*: files that had their name
  before they were whole, or that were no version of the source. *Hangs*: commands that did not end
  within %v, or that much more than the fault lasts.

**%d faults, %d runs: %d wrong files, %d partial files, %d hangs; %d runs broke another promise of the table.** Seeds %d to %d. All times are real.
If a fault and seed were tried several times, the last time counts.

| fault | what is done | runs | outcome | took | recovered | sent again | reported after | wrong | partial | hangs | message |
|---|---|---|---|---|---|---|---|---|---|---|---|
%s
The disk that fails by itself is ext4 on a loop device. The disk that fails on command is a FUSE file
system that answers as a kernel would, such as for a quota, which the kernel at hand cannot have.
The clocks are those that the processes see: ptrace(2) takes the vDSO from them and changes what the
kernel answers. The times that file systems give to files stay.

`+"`go test ./tests/faults -run TestMatrix -faults . -trials 20 -timeout 0 -report \"$PWD/docs/evidence/reliability.md\"`"+` writes this page. It needs
root on Linux, /dev/fuse, loop devices and mkfs.ext4. With -results it can be made in parts, and has
the figures of the other tests, too.
`, int64(lineRate)/1e6, lineRTT, retryFor, byItself, again, missed, runtime.NumCPU(), hangs, kinds, len(all), wrong, partial, hung, broken, seeds[0], seeds[1], lines.String())
}

// seconds writes the median and the maximum of durations.
func seconds(d []time.Duration) string {
	if len(d) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f (%.1f)", middle(d).Seconds(), slices.Max(d).Seconds())
}

// middle returns the median, or 0 if there are no values.
func middle[T int64 | time.Duration](v []T) T {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
