package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"lukechampine.com/blake3"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// The demo emulates the line from fxfer's first user story: a DVD image over 1 Gbit/s and 10 ms.
const (
	demoRate   = 1_000_000_000
	demoRTT    = 10 * time.Millisecond
	demoLarge  = 600 << 20
	demoSmall  = 60
	demoTaste  = 4 * time.Second // how long the transfer with the small window runs
	demoWindow = 64 << 10
	// tcpShare is the payload in a full Ethernet frame: 1448 of 1538 bytes.
	tcpShare = 1448.0 / 1538
)

func newDemo() *cobra.Command {
	var clean bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show what fxfer does in half a minute, on this machine alone",
		Long: `Demo builds a line of 1 Gbit/s and 10 ms between two hosts inside this machine.
It serves on one host and sends a folder from the other: first with a window of
64 KiB, like old FTP servers, then with automatic settings. Nothing leaves the
machine. Demo needs no special rights if the kernel lets users make namespaces.
Otherwise it uses the loopback, and says so.

Demo needs up to 1.9 GB in the folder for temporary files. The files stay for you
to look at: the last line says how much, and where. With --clean, it removes them.`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			code, ran, err := lab.Elevate()
			if ran {
				return errors.Join(err, exit.With(code))
			}
			ctx, stop := exit.Interruptible(c.Context())
			defer stop()
			d := &demo{out: c.OutOrStdout(), errs: c.ErrOrStderr(), why: err}
			return errors.Join(d.run(ctx), d.leave(clean))
		},
	}
	c.Flags().BoolVar(&clean, "clean", false, "at the end, remove the files")
	return c
}

// demo is the state of one run of the demo command.
type demo struct {
	out  io.Writer
	errs io.Writer
	why  error    // why there is no lab, nil if there is one
	lab  *lab.Lab // nil if the demo runs over loopback
	dir  string
	self string
}

// say prints a result.
func (d *demo) say(format string, args ...any) {
	d.clear()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// doing says what takes time now. On a terminal, the next text replaces it.
func (d *demo) doing(format string, args ...any) {
	d.clear()
	fmt.Fprintf(d.errs, format+" …", args...)
	if !term.IsTerminal(d.errs) {
		fmt.Fprintln(d.errs)
	}
}

// clear removes what doing wrote.
func (d *demo) clear() {
	if term.IsTerminal(d.errs) {
		fmt.Fprint(d.errs, "\r\x1b[K")
	}
}

// leave says what the demo left, or removes it.
func (d *demo) leave(clean bool) error {
	d.clear()
	if d.dir == "" {
		return nil
	}
	if clean {
		d.doing("removing files")
		if err := os.RemoveAll(d.dir); err != nil {
			return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
		}
		d.clear()
		return nil
	}
	var left int64
	_ = filepath.WalkDir(d.dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				left += info.Size()
			}
		}
		return nil // the size is only for people
	})
	d.say("left       %s in %s: look at it, then remove it; --clean does that at once", units.Bytes(left), d.dir)
	return nil
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "fxfer-demo-"); err != nil {
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	d.doing("building the line")
	if d.why == nil {
		d.lab, d.why = lab.Start(lab.Link{Rate: demoRate, RTT: demoRTT})
	}
	if d.lab != nil {
		defer func() { err = errors.Join(err, d.lab.Close()) }()
		d.say("line       %s, %s, between two hosts inside this machine", units.Rate(demoRate), units.Time(demoRTT))
	} else {
		d.say("line       the loopback: %v", d.why)
	}
	d.doing("writing %s of files to send", units.Bytes(demoLarge))
	bytes, err := d.makeFiles()
	if err != nil {
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	d.say("files      a folder of %d small files and one of %s", demoSmall, units.Bytes(demoLarge))
	url, stop, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	d.doing("sending with a window of 64 KiB, for %s", units.Time(demoTaste))
	if err := d.small(ctx, url, bytes); err != nil {
		return err
	}
	d.doing("sending with automatic settings")
	if err := d.automatic(ctx, url); err != nil {
		return err
	}
	d.doing("comparing source and target")
	files, err := sameDigests(filepath.Join(d.dir, "source"), filepath.Join(d.dir, "target", "automatic", "source"))
	if err != nil {
		return &fxfer.Error{Kind: fxfer.KindIntegrity, Err: err}
	}
	d.say("check      BLAKE3 of %d files: all equal", files)
	return nil
}

// makeFiles writes the files to send and returns their size in bytes.
func (d *demo) makeFiles() (total int64, err error) {
	source := filepath.Join(d.dir, "source")
	random := rand.NewChaCha8([32]byte{'f', 'x', 'f', 'e', 'r'})
	write := func(name string, size int64) error {
		name = filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		total += size
		_, err = io.CopyN(f, random, size)
		return errors.Join(err, f.Close())
	}
	for i := range demoSmall {
		size := int64(1) << (8 + i%12)
		if err := write(fmt.Sprintf("small/%d/%d.bin", i%6, i), size); err != nil {
			return 0, err
		}
	}
	return total, write("image.iso", demoLarge)
}

// command makes a fxfer command on one of the hosts. Each host has an FXFER_HOME of its own.
func (d *demo) command(ctx context.Context, side string, args ...string) (*exec.Cmd, func() error) {
	home := "FXFER_HOME=" + filepath.Join(d.dir, side+"-home")
	if d.lab == nil {
		c := exec.CommandContext(ctx, d.self, args...)
		c.Env = append(os.Environ(), home)
		return c, c.Start
	}
	host := d.lab.Left
	if side == "right" {
		host = d.lab.Right
	}
	c := host.Command(ctx, d.self, args...)
	c.Env = append(c.Env, home)
	return c.Cmd, c.Start
}

// serve starts the server. It returns an invitation and a function that stops the server.
func (d *demo) serve(ctx context.Context) (url string, stop func(), err error) {
	target := filepath.Join(d.dir, "target")
	if err := os.Mkdir(target, 0o755); err != nil {
		return "", nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	host := "127.0.0.1"
	if d.lab != nil {
		host = d.lab.Right.Addr().String()
	}
	ctx, cancel := context.WithCancel(ctx)
	c, start := d.command(ctx, "right", "serve", "--quiet", "--listen", host+":0", "--invite", "--share", "demo="+target)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("start the server: %w", err)
	}
	stop = func() {
		cancel()
		_ = c.Wait() // the error says only that it was killed
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("start the server: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}

// send sends the folder and returns the last progress and the summary. The summary is nil if the
// transfer was stopped before its end.
func (d *demo) send(ctx context.Context, url, below string, flags ...string) (*transfer.JSONProgress, *transfer.JSONSummary, error) {
	args := append([]string{"send", "--json"}, flags...)
	args = append(args, filepath.Join(d.dir, "source"), url+"/"+below)
	c, start := d.command(ctx, "left", args...)
	out, err := c.StdoutPipe()
	if err == nil {
		err = start()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start the client: %w", err)
	}
	progress := new(transfer.JSONProgress)
	var summary *transfer.JSONSummary
	var failed exit.JSONError
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var kind struct{ Type string }
		_ = json.Unmarshal(lines.Bytes(), &kind) // this is our own output; lines of other types are skipped
		switch kind.Type {
		case "progress":
			err = json.Unmarshal(lines.Bytes(), progress)
			if term.IsTerminal(d.errs) {
				d.doing("%s of %s at %s", units.Bytes(progress.BytesDone), units.Bytes(progress.Bytes), units.Rate(progress.Goodput))
			}
		case "summary":
			summary = new(transfer.JSONSummary)
			err = json.Unmarshal(lines.Bytes(), summary)
		case "error":
			err = json.Unmarshal(lines.Bytes(), &failed)
		}
		if err != nil {
			break
		}
	}
	if waitErr := c.Wait(); ctx.Err() != nil {
		return progress, nil, nil
	} else if waitErr != nil {
		return nil, nil, errors.Join(fmt.Errorf("send: %s", failed.Message), err)
	}
	return progress, summary, err
}

// small sends for a few seconds with the window of an old server, and computes how long the whole
// transfer would take.
func (d *demo) small(parent context.Context, url string, bytes int64) error {
	ctx, cancel := context.WithTimeout(parent, demoTaste)
	defer cancel()
	p, summary, err := d.send(ctx, url, "window-64k", "--streams", "1", "--sock-buf", fmt.Sprint(demoWindow))
	if err != nil || parent.Err() != nil {
		return errors.Join(err, parent.Err())
	}
	if summary != nil {
		d.say("64 KiB     %s with a window of 64 KiB and one stream", units.Rate(summary.Goodput))
		return nil
	}
	if p.Goodput <= 0 {
		return errors.New("nothing arrived")
	}
	all := time.Duration(float64(bytes) * 8 / p.Goodput * float64(time.Second))
	d.say("64 KiB     %s with this window and one stream: all would take %s", units.Rate(p.Goodput), units.Time(all))
	return nil
}

// automatic sends everything with automatic settings.
func (d *demo) automatic(ctx context.Context, url string) error {
	plain := url
	if at := strings.LastIndexByte(url, '@'); at >= 0 { // the invitation is used up, and the server knows its client by now
		plain = "fxfer://" + url[at+1:]
	}
	_, s, err := d.send(ctx, plain, "automatic")
	if err != nil {
		return err
	}
	if s == nil {
		return ctx.Err()
	}
	d.say("automatic  %s with %s: all took %s", units.Rate(s.Goodput), units.Count(int64(s.Streams), "stream", "streams"), units.Time(time.Duration(s.Duration*float64(time.Second))))
	if d.lab != nil {
		limit := demoRate * tcpShare
		d.say("limit      %s is what TCP can carry on this line: fxfer took %.0f %% of it", units.Rate(limit), s.Goodput/limit*100)
	}
	return nil
}

// sameDigests compares all files below two folders and returns the number of files.
func sameDigests(source, target string) (files int, err error) {
	err = filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rest, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		want, err := fileDigest(path)
		if err != nil {
			return err
		}
		got, err := fileDigest(filepath.Join(target, rest))
		if err != nil {
			return err
		}
		if !slices.Equal(want, got) {
			return fmt.Errorf("%s differs", rest)
		}
		files++
		return nil
	})
	return files, err
}

func fileDigest(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := blake3.New(32, nil)
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
