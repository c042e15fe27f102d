//go:build !windows

// Package docs_test runs what the documents tell people to type.
package docs_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const top = "../.."

// program builds fxfer once.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "fxfer")
	out, err := exec.Command("go", "build", "-o", path, "github.com/fxfer/fxfer/cmd/fxfer").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func documents(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	names, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	require.NoError(t, err)
	for _, name := range append(names, filepath.Join(top, "README.md"), filepath.Join(top, "SECURITY.md")) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all[filepath.Base(name)] = string(text)
	}
	return all
}

func TestDocs(t *testing.T) {
	fxfer := program(t)
	all := documents(t)
	t.Run("Commands", func(t *testing.T) { commands(t, fxfer, all) })
	t.Run("Links", func(t *testing.T) { links(t, all) })
	ran := 0
	for name, text := range all {
		if script := runnable(text); len(script) > 0 {
			ran++
			t.Run(name, func(t *testing.T) { run(t, fxfer, script) })
		}
	}
	require.GreaterOrEqual(t, ran, 4)
}

// written finds commands: lines of code, and code within lines.
var (
	codeLine = regexp.MustCompile(`(?m)^(?:    |)(?:\$ )?(?:sudo )?(?:[a-z_]+ [a-z]+ \| )?(fxfer [^\n]*)$`)
	inline   = regexp.MustCompile("`(?:sudo )?(?:[a-z_]+ [a-z]+ \\\\?\\| )?(fxfer [^`]*)`")
)

// commands holds each command against the program: it knows the verb and all flags.
func commands(t *testing.T, fxfer string, all map[string]string) {
	tried := make(map[string]bool)
	for name, text := range all {
		var found []string
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
				if a == "--" { // what follows is for another program
					args = args[:i]
					break
				}
			}
			flag := "" // that stands for itself, without its value
			if last := args[len(args)-1]; strings.HasPrefix(last, "-") {
				flag, args = last, args[:len(args)-1]
			}
			cmd := exec.Command(fxfer, append(args, "--help")...)
			cmd.Env = append(os.Environ(), "FXFER_HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", name, command, out)
			require.Contains(t, string(out), flag, "%s: %s", name, command)
		}
	}
	require.Greater(t, len(tried), 60)
}

// words splits a command like a shell, as far as documents need it: quotes, and an end at a comment, a pipe or the next command.
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

var link = regexp.MustCompile(`\]\(([a-z0-9./_-]+\.(?:md|svg|go))(?:#[a-z0-9-]+)?\)`)

// links finds documents that are not there.
func links(t *testing.T, all map[string]string) {
	for name, text := range all {
		dir := filepath.Join(top, "docs")
		if name == "README.md" || name == "SECURITY.md" {
			dir = top
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			require.FileExists(t, filepath.Join(dir, m[1]), name)
		}
	}
}

// step is a part of a document's script.
type step struct {
	text   string
	server bool // stays until the end
}

var block = regexp.MustCompile("(?m)^(?:```(?:sh|yaml) run( server)?\\n([^\\x00]*?)^```|<!-- run\\n([^\\x00]*?)-->)$") //nolint:gocritic // both choices begin a line

// runnable is what of a document is marked to be run, in order. What no reader sees stands in comments. A comment may end within a here
// document, which the next part continues.
func runnable(text string) (steps []step) {
	open := false
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		part := m[2] + m[3]
		if open {
			steps[len(steps)-1].text += part
		} else {
			steps = append(steps, step{part, m[1] != ""})
		}
		last := steps[len(steps)-1].text
		open = strings.Contains(last, "<<'END'\n") && !strings.HasSuffix(last, "END\n")
	}
	return steps
}

var invitation = regexp.MustCompile(`fxfer://[^@\s]+@[^/\s]+/`)

// run does what a document says, in one folder, with the host nas being this one.
func run(t *testing.T, fxfer string, steps []step) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "srv", "backup"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "srv", "files"), 0o755))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l.Close()
	replace := []string{"/srv/", dir + "/srv/", "/etc/fxfer/", "etc/fxfer/", "fxfer://nas", "fxfer://" + address}
	shell := func(s step, home string) *exec.Cmd {
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", strings.NewReplacer(replace...).Replace(s.text))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(fxfer)+":"+os.Getenv("PATH"), "FXFER_HOME="+filepath.Join(dir, home), "FXFER_LISTEN="+address)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.WaitDelay = 5 * time.Second
		return cmd
	}
	for _, s := range steps {
		if !s.server {
			cmd := shell(s, "client")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s\n%s", s.text, out)
			continue
		}
		url := serve(t, shell(s, "server"), filepath.Join(dir, "server.out"))
		replace = append([]string{"fxfer://TOKEN:PIN@nas/", at(url, address)}, replace...)
	}
}

// at is an invitation for an address at which this host is reached without the network.
func at(url, address string) string {
	secret, _, _ := strings.Cut(url, "@")
	return fmt.Sprintf("%s@%s/", secret, address)
}

// serve starts a server that stays until the test ends, and returns the URL that it prints into a file.
func serve(t *testing.T, cmd *exec.Cmd, name string) (url string) {
	t.Helper()
	out, err := os.Create(name)
	require.NoError(t, err)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		out.Close()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(name)
		url = invitation.FindString(string(text))
		return url != ""
	}, 20*time.Second, 10*time.Millisecond, "the server prints no invitation")
	return url
}
