//go:build !windows

// Package docs_test runs the commands that the documents show.
package docs_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity/testca"
)

const top = "../.."

// program installs fxfer in the way that README.md describes.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("bash", "-c", install)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "GOBIN="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "fxfer")
}

// documents returns the text of each document by its path below the top folder.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/evidence/*.md"} {
		names, err := filepath.Glob(filepath.Join(top, pattern))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			path, err := filepath.Rel(top, name)
			require.NoError(t, err)
			all[filepath.ToSlash(path)] = string(text)
		}
	}
	return all
}

// TestLines keeps documents readable: README.md fits on three screens, and lines fit on one.
// Tables, indented output and invisible parts may be longer, and so may pages that programs write.
func TestLines(t *testing.T) {
	hidden := regexp.MustCompile(`(?m)^<!--[^\x00]*?-->$`)
	for name, text := range documents(t) {
		if strings.HasPrefix(name, "docs/evidence/") {
			continue
		}
		for line := range strings.Lines(hidden.ReplaceAllString(text, "")) {
			if !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 100, "%s: %s", name, line)
			}
		}
		if name == "README.md" {
			require.LessOrEqual(t, strings.Count(text, "\n"), 120)
		}
	}
}

func TestDocs(t *testing.T) {
	fxfer := program(t)
	all := documents(t)
	t.Run("Commands", func(t *testing.T) { commands(t, fxfer, all) })
	t.Run("Links", func(t *testing.T) { links(t, all) })
	var ran atomic.Int64
	t.Run("Run", func(t *testing.T) {
		for name, text := range all {
			if name == "CONTRIBUTING.md" { // its commands are for the sources, not for the program
				continue
			}
			if script := runnable(joined(text)); len(script) > 0 {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ran.Add(int64(run(t, fxfer, script)))
				})
			}
		}
	})
	t.Logf("%d commands were run", ran.Load())
	require.Greater(t, ran.Load(), int64(70))
	for _, x := range elsewhere {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(all)), func(text string) bool { return strings.Contains(text, x.command) }), "%s is in no document", x.command)
	}
}

// written finds commands in lines of code, and in code within lines.
var (
	codeLine = regexp.MustCompile(`(?m)^(?:    |)(?:\$ )?(?:sudo )?(?:[a-z_]+ [a-z]+ \| )?(fxfer [^\n]*)$`)
	inline   = regexp.MustCompile("`(?:sudo )?(?:[a-z_]+ [a-z]+ \\\\?\\| )?(fxfer [^`]*)`")
)

// joined joins indented lines that end in a backslash with the next line.
func joined(text string) string { return continued.ReplaceAllString(text, " ") }

var continued = regexp.MustCompile(` \\\n {5,}`)

// commands checks that the program has the verb and all flags of each command. Some flags read the files
// that they name.
func commands(t *testing.T, fxfer string, all map[string]string) {
	dir := t.TempDir()
	ca := testca.New(t, "CA")
	ca.Write(t, dir, "ca")
	ca.Issue(t, testca.Client("nas"), "ecdsa").Write(t, dir, "nas")
	tried := make(map[string]bool)
	for name, text := range all {
		var found []string
		text = joined(text)
		for _, m := range codeLine.FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		for _, command := range found {
			args := words(command)[1:]
			key := strings.Join(args, "\x00")
			if len(args) == 0 || strings.Contains(command, "…") || tried[key] {
				continue
			}
			tried[key] = true
			for i, a := range args {
				if a == "--" { // the rest is for another program
					args = args[:i]
					break
				}
			}
			flag := "" // a flag that stands alone, without its value
			if last := args[len(args)-1]; strings.HasPrefix(last, "-") {
				flag, args = last, args[:len(args)-1]
			}
			cmd := exec.Command(fxfer, append(args, "--help")...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "FXFER_HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", name, command, out)
			require.Contains(t, string(out), flag, "%s: %s", name, command)
		}
	}
	require.Greater(t, len(tried), 60)
}

// words splits a command like a shell, as far as documents need it. It handles quotes, and ends at
// a comment, a pipe or the next command.
func words(s string) (all []string) {
	var word strings.Builder
	var quote rune
	inWord := false
	flush := func() {
		if inWord {
			all = append(all, word.String())
			word.Reset()
			inWord = false
		}
	}
	for _, r := range s {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ':
			flush()
		case !inWord && r == '#', r == '|', r == ';', r == '>', r == '&':
			flush()
			return all
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	flush()
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([A-Za-z0-9./_-]*)(?:#([a-z0-9-]+))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 -]`)
)

// links finds links to files and headings that do not exist.
func links(t *testing.T, all map[string]string) {
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to, anchor := name, m[2]
			if m[1] != "" {
				to = path.Join(path.Dir(name), m[1])
				_, err := os.Stat(filepath.Join(top, to))
				require.NoError(t, err, name)
			}
			if anchor != "" {
				require.Contains(t, anchors(all[to]), anchor, "%s links to %s", name, to)
			}
		}
	}
}

// anchors returns the anchors of a document's headings.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(slug, " ", "-"))
	}
	return all
}

const install = "go install ./cmd/fxfer"

// elsewhere are commands that do not run with their page.
var elsewhere = []struct{ command, why string }{
	{"probe www.example.org", "a web server on the Internet; TestFirstFlightInTheLab asks one in a lab"},
	{install, "this test begins with it"},
	{"go run ./cmd/fxfer demo", "half a minute: .ci/run cli does it"},
	{"go test -timeout 30m ./...", "this is a part of it"},
	{"go test ./tests/", "the same test command runs these"},
	{"go test ./internal/backup", "the same"},
	{"fxfer fleet start --web", "stays; tests/fleet starts controllers"},
	{"go install github.com/fxfer/fxfer/cmd/fxfer@latest", "of what is published"},
	{"sudo systemctl", "asks for systemd, which tests/activation_linux_test.go plays"},
	{"systemctl reload", "the same"},
	{"sudo install -d -o fxfer", "needs the account, which the packages make"},
	{"sudoedit", "asks for an editor"},
	{"ssh -L", "asks for another host"},
	{"fxfer://berlin", "asks for two servers, which tests/scripts/copy.txtar starts"},
	{"--share y=y:rw", "asks for gigabytes and two servers; TestCopyInTheLab and TestRelayInTheLab do the same"},
	{"fxfer://oslo/y", "the same"},
	{"until fxfer queue", "the same"},
	{"fxfer queue drop", "of a file that waits; tests/scripts/watch.txtar drops one"},
	{"docker", "asks for a daemon and a registry"},
	{"fxfer serve --web 7434", "what to add to a command: docs/operations.md has a whole one"},
	{"10.77.0.2:7433", "tests/bench and tests/diagnose ran it between two hosts, and wrote their pages"},
	{"127.0.0.1:7433/in/", "the same on one"},
}

// step is a part of the script of a document.
type step struct {
	text  string
	shown bool // readers see it; otherwise it is a precondition of the page
}

var (
	// part is a comment, a block of commands or of a file, another block, an indented one, or code
	// within a line.
	part = regexp.MustCompile("(?m)^<!-- run\n([^\\x00]*?)-->$|^```(?:sh|yaml run)\n([^\\x00]*?)^```$|^```[^\\x00]*?^```$|((?:^    .*\n)+)|" + //nolint:gocritic // all choices begin a line
		"`((?:sudo )?(?:[a-z_]+ [a-z]+ \\\\?\\| )?(?:fxfer|curl) [^`]*)`")
	indent = regexp.MustCompile(`(?m)^    `)
	// noCommand matches the beginnings of blocks of configuration and of listings.
	noCommand = regexp.MustCompile(`^(- )?[a-z]+:|^[^ ]+/`)
	// mention matches code that is not a whole command: names of verbs and flags, or a placeholder.
	mention = regexp.MustCompile(`^fxfer [a-z -]+$|…|\b[A-Z]{3,}$`)
)

// runnable returns the commands of a document in order, including invisible ones, which are in
// comments. A comment may end within a here document. Then the next part continues the document.
func runnable(text string) (steps []step) {
	open := false
	for _, m := range part.FindAllStringSubmatch(text, -1) {
		hidden, fence, indented, inline := m[1], m[2], indent.ReplaceAllString(m[3], ""), m[4]
		switch {
		case open:
			steps[len(steps)-1].text += hidden + fence
		case hidden != "":
			steps = append(steps, step{text: hidden})
		case fence != "":
			for line := range strings.Lines(fence) {
				steps = append(steps, step{line, true})
			}
		case indented != "" && !noCommand.MatchString(indented):
			session := strings.HasPrefix(indented, "$ ") // commands with their output
			for line := range strings.Lines(indented) {
				if command, typed := strings.CutPrefix(line, "$ "); typed || !session {
					steps = append(steps, step{command, true})
				}
			}
		case inline != "" && !mention.MatchString(inline):
			steps = append(steps, step{strings.ReplaceAll(inline, `\|`, "|"), true})
		}
		if len(steps) > 0 {
			last := steps[len(steps)-1].text
			open = strings.Contains(last, "<<'END'\n") && !strings.HasSuffix(last, "END\n")
		}
	}
	return steps
}

// page is a document that runs in a folder. This host stands for all hosts in it.
type page struct {
	t              *testing.T
	fxfer, dir     string
	address        string // of the server
	web            string // port of the dashboard
	sftp, ftp, dav string // ports of doors
	invitation     string // a URL
	server         *process
}

// here replaces the hosts and folders in a command by this host and the folder of the test.
func (p *page) here(text string) string {
	for _, x := range []struct{ is, by string }{
		{`(^|[\s="'\[])/(srv|etc|mnt|var|home)\b`, "${1}" + p.dir + "/$2"},
		{`fxfer://TOKEN:PIN@[a-z]+/`, p.invitation},
		{`fxfer://(nas|host|backup-b)\b`, "fxfer://" + p.address},
		{`\b7434\b`, p.web},
		{`\b2022\b`, p.sftp},
		{`\b2121\b`, p.ftp},
		{`\b8443\b`, p.dav},
		{`(@|(?:sftp|ftp|https)://|\blftp .* )nas\b`, "${1}127.0.0.1"},
		{`\bsudo (fxfer)\b`, "$1"},
		{`\bfxfer doctor (apply|undo)\b`, "$0 --dry-run"}, // the kernel's settings do not change
		{`--at 2026-11-20\b`, "--at " + time.Now().Format(time.DateOnly)},
		{`\$KEY\b`, "$(FXFER_HOME=other fxfer key)"},
		{` -P 8\b`, "$0 -t 1"},
	} {
		text = regexp.MustCompile(x.is).ReplaceAllString(text, x.by)
	}
	return text
}

var (
	stays    = regexp.MustCompile(`\bfxfer (serve|watch|backup daemon)\b`)
	ends     = regexp.MustCompile(`--check-config|--help|\bfxfer lab\b`)
	onServer = regexp.MustCompile(`\bfxfer (serve|invite|clients|dashboard)\b`)
)

func (p *page) command(text string) *exec.Cmd {
	home := "client"
	if onServer.MatchString(text) {
		home = "server"
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", p.here(text))
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(p.dir, "bin")+":"+filepath.Dir(p.fxfer)+":"+os.Getenv("PATH"), "FXFER_HOME="+filepath.Join(p.dir, home),
		"FXFER_LISTEN="+p.address, "FXFER_TIME=3s", "FXFER_MOST=200MB", // for probe
		"FXFER_SIZE=2MB", "FXFER_ROUNDS=2", "FXFER_BUDGET=60s") // for tune: a limit for busy hosts, since few rounds end it before
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run does what a document says. A command that stays runs until the page ends, or, if it is a
// server, until the next server starts. run returns how many visible commands it has run.
func run(t *testing.T, fxfer string, steps []step) (ran int) {
	p := &page{t: t, fxfer: fxfer, dir: t.TempDir()}
	for _, dir := range []string{"srv/backup", "srv/files", "mnt", "bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(p.dir, dir), 0o755))
	}
	var free [5]net.Listener
	for i := range free {
		// Below the ports that the system gives to outgoing connections, which other tests make by thousands.
		for err := error(nil); free[i] == nil; {
			free[i], err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
			require.True(t, err == nil || errors.Is(err, syscall.EADDRINUSE), "%v", err)
		}
	}
	p.address = free[0].Addr().String()
	_, p.web, _ = net.SplitHostPort(free[1].Addr().String())
	_, p.sftp, _ = net.SplitHostPort(free[2].Addr().String())
	_, p.ftp, _ = net.SplitHostPort(free[3].Addr().String())
	_, p.dav, _ = net.SplitHostPort(free[4].Addr().String())
	for _, l := range free {
		require.NoError(t, l.Close())
	}
	for _, s := range steps {
		text := strings.TrimSpace(s.text)
		switch {
		case slices.ContainsFunc(elsewhere, func(x struct{ command, why string }) bool { return strings.Contains(text, x.command) }):
			continue
		case lacks(fxfer, text):
			t.Logf("this host lacks what it takes: %s", text)
			continue
		case stays.MatchString(text) && !ends.MatchString(text):
			p.start(text)
		default:
			out, err := p.command(text).CombinedOutput()
			require.NoError(t, err, "%s\n%s\n%s", text, p.here(text), out)
		}
		if s.shown {
			ran++
		}
	}
	return ran
}

// sshPlace matches a place that docs/ssh.md reaches by ssh.
var sshPlace = regexp.MustCompile(`\bnas:backup\b`)

// lacks reports whether this host cannot run a command.
func lacks(fxfer, text string) bool {
	if _, err := exec.LookPath("socat"); err != nil && strings.Contains(text, "socat") {
		return true
	}
	if strings.Contains(text, "fxfer lab") {
		return exec.Command(fxfer, "lab", "run", "--", "iperf3", "--version").Run() != nil
	}
	if strings.Contains(text, "/usr/sbin/sshd") || sshPlace.MatchString(text) {
		_, err := exec.LookPath("/usr/sbin/sshd")
		return err != nil
	}
	program, _, _ := strings.Cut(text, " ")
	_, err := exec.LookPath(program)
	return (program == "curl" || program == "lftp") && err != nil
}

// process is a command that stays.
type process struct {
	cmd   *exec.Cmd
	said  string // file with its output
	err   error  // why it ended
	ended chan struct{}
}

// start runs a command that stays, and returns when it serves.
func (p *page) start(text string) {
	p.t.Helper()
	server := strings.Contains(text, "fxfer serve")
	if server && p.server != nil {
		p.server.stop(p.t)
	}
	out, err := os.CreateTemp(p.dir, "said")
	require.NoError(p.t, err)
	defer out.Close()
	x := &process{cmd: p.command(text), said: out.Name(), ended: make(chan struct{})}
	x.cmd.Stdout, x.cmd.Stderr = out, out
	require.NoError(p.t, x.cmd.Start())
	go func() {
		x.err = x.cmd.Wait()
		close(x.ended)
	}()
	p.t.Cleanup(func() { x.stop(p.t) })
	if !server {
		return
	}
	p.server = x
	require.Eventually(p.t, func() bool {
		conn, err := net.Dial("tcp", p.address)
		if err != nil {
			return false
		}
		_ = conn.Close()
		if found, err := filepath.Glob(filepath.Join(p.dir, "server", "serving-*.json")); err != nil || len(found) == 0 {
			return false // other commands would not find it yet
		}
		if !strings.Contains(text, "--invite") {
			return true
		}
		p.invitation = x.invitation(p.address)
		return p.invitation != ""
	}, 20*time.Second, 10*time.Millisecond, "%s does not serve", text)
}

var invitation = regexp.MustCompile(`fxfer://[^@\s]+@`)

// invitation returns the URL that a server has printed, with an address of this host that works
// without a network.
func (x *process) invitation(address string) string {
	text, _ := os.ReadFile(x.said)
	if secret := invitation.FindString(string(text)); secret != "" {
		return secret + address + "/"
	}
	return ""
}

// stop ends everything that still runs. It may be called again.
func (x *process) stop(t *testing.T) {
	t.Helper()
	if x.ended == nil {
		return
	}
	select {
	case <-x.ended:
		t.Errorf("%s has ended: %v", x.cmd, x.err)
	default:
		_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGTERM)
		<-x.ended
	}
	x.ended = nil
	if t.Failed() {
		text, _ := os.ReadFile(x.said)
		t.Logf("%s", text)
	}
}
