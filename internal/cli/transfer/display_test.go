package transfer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// under returns the progress of a transfer of 40 files.
func under() fxfer.Progress {
	return fxfer.Progress{
		Elapsed: 6 * time.Second, Files: 40, FilesDone: 12, Bytes: 4_700_000_000, BytesDone: 2_100_000_000, Goodput: 943e6, Streams: 8,
		RTT: 10 * time.Millisecond, Active: []fxfer.FileProgress{{Path: "a/b", Bytes: 1000, Done: 250}, {Path: "c", Bytes: -1, Done: 7}},
	}
}

func TestTotals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fxfer.Progress)
		want   string
	}{
		"all":      {func(*fxfer.Progress) {}, "2.10 GB of 4.70 GB, 943 Mbit/s, ETA 0:22, 12 of 40 files, 8 streams"},
		"walking":  {func(p *fxfer.Progress) { p.Walking = true }, "2.10 GB of more than 4.70 GB, 943 Mbit/s, 12 done of 40 found, 8 streams"},
		"looking":  {func(p *fxfer.Progress) { *p = fxfer.Progress{Walking: true, FilesFailed: 1, Streams: 8} }, "looking for files, 1 failed, 8 streams"},
		"failures": {func(p *fxfer.Progress) { p.FilesFailed = 2 }, "2.10 GB of 4.70 GB, 943 Mbit/s, ETA 0:22, 2 failed, 12 of 40 files, 8 streams"},
		"stalled":  {func(p *fxfer.Progress) { p.Goodput = 0 }, "2.10 GB of 4.70 GB, 0 bit/s, 12 of 40 files, 8 streams"},
		"slow":     {func(p *fxfer.Progress) { p.Goodput = 1 }, "2.10 GB of 4.70 GB, 1 bit/s, 12 of 40 files, 8 streams"},
		"one stream": {func(p *fxfer.Progress) { p.Streams, p.Files, p.BytesDone = 1, 1, p.Bytes },
			"4.70 GB of 4.70 GB, 943 Mbit/s, 1 stream"},
		"standard input": {func(p *fxfer.Progress) { p.Files, p.Active = 1, p.Active[1:] }, "2.10 GB, 943 Mbit/s, 8 streams"},
		"a million": {func(p *fxfer.Progress) { p.Walking, p.Files, p.FilesDone = true, 1_312_000, 98_000 },
			"2.10 GB of more than 4.70 GB, 943 Mbit/s, 98,000 done of 1,312,000 found, 8 streams"},
	} {
		p := under()
		c.change(&p)
		require.Equal(t, c.want, strings.Join(Totals(&p), ", "), name)
	}
}

func TestFigures(t *testing.T) {
	p := under()
	p.Limiter = "line rate"
	for width, want := range map[int]string{ // rate and ETA go last, the limiter before them
		130: " 44 %  2.10 GB of 4.70 GB  943 Mbit/s  ETA 0:22  12 of 40 files  limit: line rate  8 streams",
		105: " 44 %  2.10 GB of 4.70 GB  943 Mbit/s  ETA 0:22  12 of 40 files  limit: line rate",
		90:  " 44 %  2.10 GB of 4.70 GB  943 Mbit/s  ETA 0:22  12 of 40 files",
		75:  " 44 %  2.10 GB of 4.70 GB  943 Mbit/s  ETA 0:22",
		55:  " 44 %  2.10 GB of 4.70 GB  943 Mbit/s  ETA 0:22", // the bar is short
		50:  " 44 %  943 Mbit/s  ETA 0:22",
		30:  "943 Mbit/s  ETA 0:22",
		20:  "943 Mbit/s",
		10:  "",
	} {
		require.Equal(t, want, totalFigures(&p, width), width)
	}
	require.Equal(t, " 25 %  250 B of 1.00 kB", fileFigures(&p.Active[0], 40))
	require.Equal(t, " 25 %", fileFigures(&p.Active[0], 20))
	require.Equal(t, "       7 B", fileFigures(&p.Active[1], 40))
	require.Equal(t, "total", totalName(&p, 80))
	p.Files, p.Active = 1, p.Active[:1]
	require.Equal(t, "a/b", totalName(&p, 80))
	p.Active[0].Path = "photos/2026/a-rather-long-name.jpg"
	require.Equal(t, "…her-long-name.jpg", totalName(&p, 54))
}

func TestSummary(t *testing.T) {
	full := fxfer.Report{
		Server: "nas:7433", Duration: 40940 * time.Millisecond, Files: 1, Sent: 1, Bytes: 4_700_000_000, Written: 4_700_000_000, Goodput: 918.4e6, Peak: 941e6,
		Digest: "d1f2", Streams: 8, Congestion: "bbr", RTT: 10200 * time.Microsecond, BDP: 1_200_000, SendBuffer: 8 << 20, RecvBuffer: 6 << 20, Retransmits: 120,
	}
	shared := fxfer.Sharing{
		Priority: fxfer.PriorityNormal, Shared: 12 * time.Second, Queue: 3400 * time.Microsecond, QueueMost: 38 * time.Millisecond, LostOwn: 12,
	}
	var verbose, readback bool
	for name, c := range map[string]struct {
		change func(*fxfer.Report)
		want   string
	}{
		"one file": {func(*fxfer.Report) {}, `
sent       4.70 GB in 40.9 s, 1 file
speed      918 Mbit/s, peak 941 Mbit/s
checked    BLAKE3 d1f2
`},
		"verbose": {func(r *fxfer.Report) { r.Resent, verbose = 2e6, true }, `
sent       4.70 GB in 40.9 s, 1 file
speed      918 Mbit/s, peak 941 Mbit/s
checked    BLAKE3 d1f2
path       RTT 10.2 ms, BDP 1.20 MB, send buffer 8.39 MB, receive buffer 6.29 MB
streams    8, bbr, 120 retransmits, 2.00 MB sent twice
`},
		"beside others": {func(r *fxfer.Report) { r.Sharing = shared }, `
sent       4.70 GB in 40.9 s, 1 file
speed      918 Mbit/s, peak 941 Mbit/s
checked    BLAKE3 d1f2
line       shared with others for 12.0 s, added delay 3.4 ms, at most 38.0 ms, sent again: own queue 12
`},
		"within a building": {func(r *fxfer.Report) { r.Sharing, r.RTT = shared, 200*time.Microsecond }, `
sent       4.70 GB in 40.9 s, 1 file
speed      918 Mbit/s, peak 941 Mbit/s
checked    BLAKE3 d1f2
`},
		"many files": {func(r *fxfer.Report) {
			r.Files, r.Sent, r.Same, r.Failed, r.Resumed, r.Resent, r.Digest, r.Reconnects = 40, 30, 8, 2, 1e9, 2e6, "", 1
		}, `
sent       4.70 GB in 40.9 s, 30 files, 8 unchanged, 2 failed, 1.00 GB resumed
speed      918 Mbit/s, peak 941 Mbit/s, 1 reconnect
checked    each file by its BLAKE3 digest
`},
		"kernel without figures": {func(r *fxfer.Report) {
			r.Streams, r.Congestion, r.RTT, r.BDP, r.SendBuffer, r.RecvBuffer, r.Retransmits, r.Peak = 1, "", 0, 0, 0, 0, 0, r.Goodput
			verbose = true
		}, `
sent       4.70 GB in 40.9 s, 1 file
speed      918 Mbit/s
checked    BLAKE3 d1f2
streams    1
`},
		"read back into a snapshot": {func(r *fxfer.Report) { r.Digest, r.Snapshot, readback = "", "2026-11-20T020000Z", true }, `
sent       4.70 GB in 40.9 s, 1 file
speed      918 Mbit/s, peak 941 Mbit/s
checked    each file by its BLAKE3 digest, read back from the disk
snapshot   2026-11-20T020000Z
`},
		"nothing new": {func(r *fxfer.Report) { r.Sent, r.Same, r.Files, r.Written = 0, 3, 3, 0 }, `
unchanged  3 files in 40.9 s
`},
		"a mirror, compressed": {func(r *fxfer.Report) {
			r.Raw, r.Coded, r.Removed, r.Skipped, r.Files = 4_700_000_000, 1_500_000_000, 3, 1, 2
		}, `
sent       4.70 GB in 40.9 s, 1 file, 1 not wanted, 3 removed
speed      918 Mbit/s, peak 941 Mbit/s, compressed 3.1×
checked    BLAKE3 d1f2
`},
		"a dry run": {func(r *fxfer.Report) {
			r.Sent, r.Written, r.Same, r.Removed, r.Plan = 0, 0, 7, 2, &fxfer.Plan{Create: 12, Update: 3, Set: 1, Bytes: 1e9}
		}, `
dry run    12 to create, 3 to update, 1 to get other metadata, 2 to delete, 1.00 GB to send, 7 files unchanged
`},
		"nothing but removed": {func(r *fxfer.Report) { r.Sent, r.Same, r.Files, r.Written, r.Removed = 0, 3, 3, 0, 2 }, `
unchanged  3 files in 40.9 s, 2 removed
`},
		"an empty folder": {func(r *fxfer.Report) { r.Sent, r.Same, r.Files, r.Written = 0, 0, 0, 0 }, `
sent       no files in 40.9 s
`},
		"one link": {func(r *fxfer.Report) { r.Sent, r.Same, r.Files, r.Written, r.Links = 0, 0, 0, 0, 1 }, `
sent       no files, 1 link in 40.9 s
`},
		"two links": {func(r *fxfer.Report) { r.Sent, r.Same, r.Files, r.Written, r.Links = 0, 0, 0, 0, 2 }, `
sent       no files, 2 links in 40.9 s
`},
	} {
		r := full
		verbose, readback = false, false
		c.change(&r)
		p := humanOutput{verb: "sent", verbose: verbose, readback: readback}
		require.Equal(t, c.want[1:], p.summary(&r), name)
	}
}

func TestFailuresListed(t *testing.T) {
	r := fxfer.Report{Failed: 1, Failures: []fxfer.FileResult{{Path: "a", Err: fs.ErrPermission}}}
	var out strings.Builder
	printFailures(&out, &r, fmt.Errorf("a: %w", fs.ErrPermission), "")
	printFailures(&out, nil, nil, "")
	step := fxfer.Report{Failed: 1, Failures: []fxfer.FileResult{{Path: "a", Err: fmt.Errorf("reading: %w", fs.ErrClosed)}}}
	printFailures(&out, &step, fs.ErrClosed, "")
	gone := fxfer.FileResult{Path: "c", Local: "b/c", Err: &fs.PathError{Op: "walk", Path: "c", Err: fs.ErrNotExist}} // whose path the error has wholly
	printFailures(&out, &fxfer.Report{Failed: 1, Failures: []fxfer.FileResult{gone}}, gone.Failure(), "")
	require.Empty(t, out.String(), "one failure is the error")
	printFailures(&out, &r, fs.ErrClosed, "")
	require.Equal(t, "fxfer: failed: a: permission denied\n", out.String(), "the error is another one")
	out.Reset()
	r.Failed = 123
	for i := range 99 {
		r.Failures = append(r.Failures, fxfer.FileResult{Path: fmt.Sprintf("b%d\x1b[2J", i), Err: fs.ErrPermission})
	}
	printFailures(&out, &r, nil, "")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, shownFailures+1)
	require.Equal(t, "fxfer: failed: a: permission denied", lines[0])
	require.Equal(t, "fxfer: failed: b0\ufffd[2J: permission denied", lines[1])
	require.Equal(t, "fxfer: failed: 103 more: --report FILE lists all", lines[shownFailures])
}

func TestPlainLines(t *testing.T) {
	var out, errs strings.Builder
	d := newDisplay(&Flags{}, "sent", &out, &errs)
	for s := range 21 {
		p := under()
		p.Elapsed = time.Duration(s) * time.Second
		d.progress(&p)
	}
	d.notice("connection lost;\nagain")
	d.finish(nil, nil)
	line := "fxfer: 44 %, 2.10 GB of 4.70 GB, 943 Mbit/s, ETA 0:22, 12 of 40 files, 8 streams\n"
	require.Equal(t, strings.Repeat(line, 4)+"fxfer: connection lost;; again\n", errs.String())
	require.Empty(t, out.String())
}

func TestQuiet(t *testing.T) {
	var out, errs strings.Builder
	d := newDisplay(&Flags{Quiet: true}, "sent", &out, &errs)
	p := under()
	d.progress(&p)
	d.notice("connection lost")
	d.finish(&fxfer.Report{Sent: 1, Written: 1}, nil)
	require.Empty(t, out.String()+errs.String())
}

func TestJSONLines(t *testing.T) {
	var out, errs strings.Builder
	d := newDisplay(&Flags{JSON: true}, "sent", &out, &errs)
	for ms := 0; ms <= 2500; ms += 250 {
		p := under()
		p.Elapsed = time.Duration(ms) * time.Millisecond
		d.progress(&p)
	}
	d.(lister).file(&fxfer.FileResult{Path: "<a>\n", Kind: "file", Bytes: 3, Outcome: fxfer.Committed, Digest: "d1"})
	failed := fxfer.FileResult{Path: "b", Kind: "file", Outcome: fxfer.Failed, Err: fs.ErrPermission}
	d.(lister).file(&failed)
	d.notice("connection lost")
	d.finish(&fxfer.Report{Server: "h:1", Duration: 1500 * time.Millisecond, Goodput: 1e6, RTT: time.Millisecond, Failures: []fxfer.FileResult{failed}},
		&fxfer.Error{Kind: fxfer.KindPartial, Err: errors.New("1 failed")})
	require.Empty(t, errs.String())

	var types []string
	objects := map[string]map[string]any{}
	for line := range strings.Lines(out.String()) {
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		kind := object["type"].(string)
		types, objects[kind] = append(types, kind), object
	}
	require.Equal(t, []string{"progress", "progress", "file", "file", "notice", "progress", "summary"}, types)
	require.InDelta(t, 2.5, objects["progress"]["elapsed_seconds"], 1e-9, "the last one is not lost")
	require.InDelta(t, 943e6, objects["progress"]["goodput_bits_per_second"], 1)
	require.Contains(t, out.String(), `{"type":"file","path":"<a>\n","kind":"file","bytes":3,"outcome":"committed","digest":"d1"}`)
	require.Equal(t, "permission denied", objects["file"]["error"])
	require.InDelta(t, 0.001, objects["summary"]["rtt_seconds"], 1e-9)
	require.Len(t, objects["summary"]["failures"], 1)
}

// TestBars only checks that drawing neither hangs nor races. Seeing the bars takes a terminal.
func TestBars(t *testing.T) {
	var out, errs strings.Builder
	g := guarded{shown: &bars{humanOutput: humanOutput{verb: "sent", out: &out, errs: &errs}}}
	g.notice("before")
	for i := range 50 {
		p := under()
		p.Active[0].Path = fmt.Sprint(i / 5)
		g.progress(p)
		g.notice("connection lost")
	}
	g.finish(&fxfer.Report{Same: 2}, nil)
	g.progress(under())
	g.notice("too late")
	g.finish(&fxfer.Report{Same: 2}, nil)
	require.Equal(t, "unchanged  2 files in 0 µs\n", out.String())
	require.Contains(t, errs.String(), "fxfer: before\n")
	require.NotContains(t, errs.String(), "too late")
}

func TestWarningsListed(t *testing.T) {
	var out strings.Builder
	p := humanOutput{errs: &out, owners: true}
	p.printWarnings(nil)
	report := &fxfer.Report{NotStored: []fxfer.NotStored{
		{What: "owner", Count: 12, Path: "a\x1b/b", Text: "operation not permitted"}, {What: "acl", Count: 1, Path: "c", Text: "not supported"},
	}}
	p.printWarnings(report)
	require.Equal(t, "fxfer: warning: the target could not store the owner of 12 entries, first of a\ufffd/b: operation not permitted\n"+
		"fxfer: warning: the target could not store the acl of c: not supported\n", out.String())

	out.Reset()
	p.owners = false
	p.printWarnings(report)
	require.Equal(t, "fxfer: warning: the target could not store the acl of c: not supported\n", out.String())
}

// Nobody but root can keep owners, so others hear of it only if they asked for owners.
func TestOwnersAsked(t *testing.T) {
	var f Flags
	require.Equal(t, os.Geteuid() == 0, f.ownersAsked())
	for _, args := range []string{"--strict", "--numeric-ids", "-v"} {
		f, err := parseTransferFlags(args)
		require.NoError(t, err)
		require.True(t, f.ownersAsked(), args)
	}
	f.Owners = true
	require.True(t, f.ownersAsked())
}

// Only a display that shows each entry asks for their outcomes.
func TestLists(t *testing.T) {
	for name, x := range map[string]struct {
		flags Flags
		lists bool
	}{
		"plain":   {Flags{}, false},
		"quiet":   {Flags{Quiet: true}, false},
		"json":    {Flags{JSON: true}, true},
		"dry run": {Flags{Call: fxfer.Transfer{Target: fxfer.Target{DryRun: true}}}, true},
	} {
		g := guarded{shown: newDisplay(&x.flags, "sent", io.Discard, io.Discard)}
		require.Equal(t, x.lists, g.lists() != nil, name)
	}
	g := guarded{shown: &bars{}}
	require.Nil(t, g.lists())

	r, err := newReportFile(filepath.Join(t.TempDir(), "report"))
	require.NoError(t, err)
	g.shown = &reporting{quiet{}, r}
	file := g.lists()
	file(fxfer.FileResult{Path: "a", Outcome: fxfer.Unchanged})
	g.finish(nil, nil)
	file(fxfer.FileResult{Path: "too late", Outcome: fxfer.Unchanged})
	require.NoError(t, r.close())
	all, err := os.ReadFile(r.file.Name())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(all), "\n"), "%s", all)
}

func TestItemised(t *testing.T) {
	var out, errs strings.Builder
	d := newDisplay(&Flags{Call: fxfer.Transfer{Target: fxfer.Target{DryRun: true}}}, "sent", &out, &errs)
	for path, outcome := range []fxfer.Outcome{fxfer.WouldCreate, fxfer.WouldUpdate, fxfer.WouldSet, fxfer.WouldRemove, fxfer.Unchanged, fxfer.Skipped} {
		d.(lister).file(&fxfer.FileResult{Path: fmt.Sprintf("%d\n\x1b", path), Outcome: outcome})
	}
	d.finish(&fxfer.Report{Plan: &fxfer.Plan{Create: 1}}, nil)
	require.Equal(t, "create    0\ufffd\ufffd\nupdate    1\ufffd\ufffd\nmetadata  2\ufffd\ufffd\ndelete    3\ufffd\ufffd\n"+
		"dry run    1 to create, 0 files unchanged\n", out.String())
	require.Empty(t, errs.String())
}

// A part of a plan says nothing.
func TestPlanBroken(t *testing.T) {
	for complete, want := range map[bool]string{false: "", true: "dry run    1 to create, 2 files unchanged\n"} {
		var out, errs strings.Builder
		d := newDisplay(&Flags{Call: fxfer.Transfer{Target: fxfer.Target{DryRun: true}}}, "sent", &out, &errs)
		d.finish(&fxfer.Report{Plan: &fxfer.Plan{Create: 1}, Same: 2, Complete: complete}, errors.New("x"))
		require.Equal(t, want, out.String())
	}
}

func TestReportFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report")
	r, err := newReportFile(name)
	require.NoError(t, err)
	d := reporting{quiet{humanOutput{errs: io.Discard}}, r}
	d.file(&fxfer.FileResult{Path: "<a>\n", Kind: "file", Bytes: 3, Outcome: fxfer.Committed, Digest: "d1"})
	d.progress(&fxfer.Progress{})
	early, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, `{"type":"file","path":"<a>\n","kind":"file","bytes":3,"outcome":"committed","digest":"d1"}`+"\n", string(early))
	d.file(&fxfer.FileResult{Path: "b\xff", Kind: "file", Outcome: fxfer.Failed, Err: fs.ErrPermission})
	require.NoError(t, r.close())
	all, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(early)+`{"type":"file","path":"b\ufffd","path_base64":"Yv8=","kind":"file","bytes":0,"outcome":"failed","error":"permission denied"}`+"\n", string(all))
	_, err = newReportFile(filepath.Join(name, "below"))
	require.Equal(t, fxfer.KindLocalDisk, fxfer.KindOf(err))
}

// Large numbers are readable, and many small files have a speed of their own.
func TestSummaryOfSmallFiles(t *testing.T) {
	t.Parallel()
	p := humanOutput{verb: "sent"}
	got := p.summary(&fxfer.Report{Sent: 10000, Same: 2345678, Written: 48900, Duration: 2 * time.Second, Goodput: 195600})
	require.Contains(t, got, "sent       48.9 kB in 2.00 s, 10,000 files, 2,345,678 unchanged\n")
	require.Contains(t, got, "speed      196 kbit/s, 5,000 files a second\n")
	require.NotContains(t, p.summary(&fxfer.Report{Sent: 1000, Written: 1e9, Duration: time.Second, Goodput: 8e9}), "a second")
}
