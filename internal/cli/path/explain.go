package path

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/explain"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const explainTime = 30 * time.Second

// explainFlags are the flags of explain.
type explainFlags struct {
	pid, port int
	length    time.Duration
	html      string
	json      bool
}

// NewExplain returns the command that explains the transfers of other programs.
func NewExplain() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain FILE.pcap | --pid N | --port N | -- CMD [ARG...]",
		Short: "Explain why another program's transfer is slow",
		Long: `Explain says what limits the transfers of any program, such as rsync, curl or an
FTP server: the program itself, the receiver's window, the send buffer, loss, a
full line, a slow reader, a rate limit, small writes, or requests that wait for
each other. It names the limit and the remedy, for the program and for each of
its connections. It reads no payload.

With --pid, --port or a command, explain asks the kernel about the TCP sockets
ten times a second. The children of a process count, too. This works on Linux;
processes of other users need root. A command keeps its input, output and exit
code; if there is no such command, the exit code is 7. The report goes to
standard error then; with --json the report goes to standard output, and the
output of the command to standard error.

FILE is a capture in the format pcap or pcapng, made at either end of the path:
"tcpdump -s 128 -w FILE port 445". The start of the connections should be in it.
It shows a little more: the handshake, the first flight, each retransmission, and
the time that Nagle's algorithm and delayed acknowledgements cost.`,
		Example: `  fxfer explain -- rsync -a photos/ nas:/backup/
  sudo fxfer explain --port 445 --for 1m --html smb.html
  fxfer explain trace.pcap`,
		SuggestFor: []string{"why", "diagnose", "pcap"},
		RunE:       f.run,
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.Add(flags, &f.pid, "pid", "n", "", "watch this process and its children", parseProcess)
	option.Add(flags, &f.port, "port", "n", "", "watch all connections with this port at either end", parsePort)
	option.Add(flags, &f.length, "for", "time", "", "how long to watch (default 30s; a command: until it ends)", parseWatchTime)
	option.Add(flags, &f.html, "html", "file", "", "also write the report as a page to a file", option.ParseOutput)
	flags.BoolVar(&f.json, "json", false, "print JSON on standard output")
	return c
}

func parseProcess(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is not the id of a process", s)
	}
	return n, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return int(n), nil
}

func parseWatchTime(s string) (time.Duration, error) {
	d, err := units.ParseTime(s)
	if err == nil && d < time.Second {
		err = fmt.Errorf("%q is less than 1s, which shows too little", s)
	}
	return d, err
}

func (f *explainFlags) run(c *cobra.Command, args []string) error {
	command := c.ArgsLenAtDash() == 0 && len(args) > 0
	given := 0
	for _, is := range []bool{f.pid > 0, f.port > 0, len(args) > 0} {
		if is {
			given++
		}
	}
	const usage = "for example: fxfer explain --pid 4711, fxfer explain trace.pcap, or fxfer explain -- rsync -a a nas:b"
	switch {
	case given == 0:
		return exit.Usage(usage, "nothing to explain: name a process, a port, a command or a capture")
	case given > 1 || len(args) > 1 && !command:
		return exit.Usage(usage, "explain takes one of --pid, --port, a capture or a command after --")
	case len(args) == 1 && !command && f.length > 0:
		return exit.Usage("leave --for out", "a capture has its own length")
	}
	if err := checkPage(f.html); err != nil {
		return err
	}
	if len(args) == 1 && !command {
		return f.capture(c, args[0])
	}
	return f.watch(c, args)
}

func (f *explainFlags) capture(c *cobra.Command, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	defer file.Close()
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	r, err := exit.Within(ctx, func() (*explain.Report, error) { return explain.Capture(ctx, file, name) })
	switch {
	case ctx.Err() != nil:
		return exit.Interrupted("")
	case errors.Is(err, explain.ErrNoCapture):
		return exit.Usage("make one with: tcpdump -s 128 -w FILE port N", "%s: %w", name, err)
	case err != nil:
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("%s: %w", name, err)}
	}
	return f.show(c.OutOrStdout(), r)
}

func (f *explainFlags) watch(c *cobra.Command, args []string) error {
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	target, length := explain.Target{PID: f.pid, Port: f.port}, f.length
	out := c.OutOrStdout()
	if len(args) > 0 {
		if err := checkCommand(args[0]); err != nil {
			return err
		}
		target.Command = commandOf(c, args, f.json)
		if !f.json {
			out = c.ErrOrStderr()
		}
	} else if length == 0 {
		length = explainTime
	}
	if target.Command == nil && !f.json {
		fmt.Fprintf(c.ErrOrStderr(), "fxfer: watching for %s; Ctrl-C ends it early\n", units.Time(length))
	}
	r, err := explain.Watch(ctx, target, length)
	switch {
	case errors.Is(err, explain.ErrNoProcess):
		return exit.Usage("`pgrep -a NAME` finds the id of a process", "process %d: %w", f.pid, err)
	case errors.Is(err, explain.ErrForbidden):
		return exit.WithHint(fmt.Errorf("process %d: %w", f.pid, err), "run fxfer explain as root, or as the user of the process")
	case errors.Is(err, explain.ErrUnsupported):
		return exit.WithHint(err, "make a capture with tcpdump, and read it: fxfer explain FILE.pcap")
	case err != nil:
		return err
	}
	if err := f.show(out, r); err != nil {
		return err
	}
	if target.Command != nil {
		return exit.With(exitCode(target.Command))
	}
	return nil
}

// checkCommand returns an error if there is no such command, whether it is a path or not.
func checkCommand(name string) error {
	_, err := exec.LookPath(name)
	if err == nil {
		return nil
	}
	var path *fs.PathError
	var command *exec.Error
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &command):
		err = command.Err
	}
	return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("run %s: %w", name, err)}
}

// commandOf makes a command with the input and output of this one.
func commandOf(c *cobra.Command, args []string, asJSON bool) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(c.Context()), args[0], args[1:]...)
	cmd.Stdin, cmd.Stderr = c.InOrStdin(), c.ErrOrStderr()
	if cmd.Stdout = cmd.Stderr; !asJSON {
		cmd.Stdout = c.OutOrStdout()
		if f := term.File(cmd.Stdout); f != nil {
			cmd.Stdout = f // the command writes to it, not through fxfer
		}
	}
	return cmd
}

// exitCode is that of a command which has ended, as shells report it.
func exitCode(cmd *exec.Cmd) int {
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// show prints a report, and writes its page.
func (f *explainFlags) show(out io.Writer, r *explain.Report) error {
	if f.json {
		term.JSON(out, jsonExplain(r))
	} else {
		printExplain(out, r)
	}
	return writePage(f.html, func(w io.Writer) error { return writeExplainPage(w, r, time.Now()) })
}
