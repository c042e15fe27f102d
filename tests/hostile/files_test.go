package hostile

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// The intent and the messages of work on files, and the operations.
const (
	files                        = 10
	operation, content, operated = 36, 37, 38
	opList, opStat, opUsage      = 1, 2, 3
	opRead, opMkdir              = 4, 5
	opMove, opRemove             = 6, 7
	codeNotEmpty, codeTaken      = 22, 24
)

// operationOf encodes an Operation with all its switches on, except Into and DryRun.
func operationOf(do byte, to string, paths ...string) []byte {
	list := uv(uint64(len(paths)))
	for _, p := range paths {
		list = append(list, str(p)...)
	}
	return message(operation, []byte{do}, list, str(to), []byte{0, 1, 1, 0})
}

// working begins a session of work on files of the share data.
func (s *site) working(t *testing.T) *line {
	t.Helper()
	l := s.dial(t, s.known)
	id := byte(sessions.Add(1))
	l.say(request{session: id, secret: id, intent: files, share: "data"}.bytes())
	return l
}

// TestWorkElsewhere: no operation leaves the share, by its path or by its target.
func TestWorkElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "data", "mine"), nil, 0o600))
	l := s.working(t)
	defer l.Close()
	for what, p := range map[string]string{
		"dots above the share": "../outside/secret", "dots in between": "a/../../outside/secret", "an absolute path": filepath.Join(s.root, "outside/secret"),
		"through a symlink": "way/secret", "a NUL": "way\x00", "a reserved name": ".fxfer-x", "an empty element": "a//b", "an element of 256 bytes": strings.Repeat("x", 256),
		"the share itself": ".",
	} {
		tried(t, client, "work on files: "+what, guardOf(codePath))
		for _, do := range []byte{opList, opStat, opUsage, opRead, opMkdir, opMove, opRemove} {
			if p == "." && (do <= opUsage || do == opMkdir) {
				continue
			}
			l.say(operationOf(do, "stolen", p))
			code, _ := binary.Uvarint(l.await(t, operated))
			require.NotZero(t, code, "%s by operation %d", what, do)
		}
		l.say(operationOf(opMove, p, "mine"))
		code, _ := binary.Uvarint(l.await(t, operated))
		require.NotZero(t, code, "move to %s", what)
	}
	require.FileExists(t, filepath.Join(s.root, "data", "mine"))
	require.NoFileExists(t, filepath.Join(s.root, "data", "stolen"))
	s.honest(t)
}

// TestWorkBreaksProtocol: a session of work ends with what is no operation, and survives one that is
// not known.
func TestWorkBreaksProtocol(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	many := make([]string, 1025)
	for what, c := range map[string]struct {
		say  []byte
		code uint64
	}{
		"work on 1025 paths at once":       {operationOf(opRemove, "", many...), gone},
		"work on a path of 4097 bytes":     {operationOf(opMkdir, "", strings.Repeat("x/", 2048)+"x"), gone},
		"more paths than the message has":  {message(operation, []byte{opRemove}, uv(huge)), gone},
		"one new name for two entries":     {operationOf(opMove, "x", "a", "b"), codeProtocol},
		"entries where work is expected":   {announce(0, fileOf("x", 1)), codeProtocol},
		"a file's content for the server":  {message(content, str("x")), codeProtocol},
		"an answer where work is expected": {message(operated, uv(0), str(""), uv(0), uv(0), make([]byte, 32)), codeProtocol},
	} {
		tried(t, client, what, guardOf(c.code))
		l := s.working(t)
		l.say(c.say)
		code, _ := l.refusal()
		require.Equal(t, c.code, code, what)
		l.Close()
	}
	tried(t, client, "an operation that does not exist", guardOf(codeUnsupported))
	l := s.working(t)
	defer l.Close()
	l.say(operationOf(99, "", "secret"), operationOf(opStat, "", "secret"))
	code, _ := binary.Uvarint(l.await(t, operated))
	require.EqualValues(t, codeUnsupported, code)
	code, _ = binary.Uvarint(l.await(t, operated))
	require.Zero(t, code)
	require.FileExists(t, filepath.Join(s.root, "data", "secret"))
}

// TestWorkWithoutRight: who may only read changes nothing, and who may only write sees nothing.
func TestWorkWithoutRight(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	for share, refused := range map[string][]byte{"ro": {opMkdir, opMove, opRemove}, "wo": {opList, opStat, opUsage, opRead}} {
		tried(t, client, "work on files of the share "+share, guardOf(codeRight))
		l := s.dial(t, s.known)
		id := byte(sessions.Add(1))
		l.say(request{session: id, secret: id, intent: files, share: share}.bytes())
		for _, do := range refused {
			for _, p := range []string{"secret", "none"} {
				l.say(operationOf(do, "x", p))
				code, _ := binary.Uvarint(l.await(t, operated))
				require.EqualValues(t, codeRight, code, "%s: operation %d on %s", share, do, p)
			}
		}
		l.Close()
	}
}

// TestWorkRace exchanges a folder for a symlink that leads outside while entries are moved and removed
// through it.
func TestWorkRace(t *testing.T) {
	t.Parallel()
	tried(t, client, "a folder becomes a symlink while entries in it are moved and removed", guardOf(codePath))
	s := serve(t, fxfer.ServerOptions{})
	at := func(name string) string { return filepath.Join(s.root, "data", name) }
	require.NoError(t, os.Mkdir(at("folder"), 0o700))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			_ = os.Rename(at("folder"), at("aside"))
			_ = os.Symlink("../outside", at("folder"))
			_ = os.Remove(at("folder"))
			_ = os.Rename(at("aside"), at("folder"))
		}
	}()
	l := s.working(t)
	defer l.Close()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for _, op := range [][]byte{
			operationOf(opRemove, "", "folder/secret"), operationOf(opMove, "stolen", "folder/secret"), operationOf(opMove, "folder/secret", "secret"),
			operationOf(opMove, "secret", "folder/secret"), operationOf(opMkdir, "", "folder/new"), operationOf(opRemove, "", "folder/new"),
		} {
			l.say(op)
			l.await(t, operated)
		}
	}
}

// TestServerAnswersWork: a client takes nothing else than what it asked for.
func TestServerAnswersWork(t *testing.T) {
	t.Parallel()
	answer := func(code uint64) []byte {
		return message(operated, uv(code), str("x\x1b[2J"), uv(huge), uv(huge), make([]byte, 32))
	}
	call := func(script func(*line), do func(*fxfer.Files) error) error {
		p := lure(t, "", script)
		f, err := p.client(t, fxfer.Options{}).Files(t.Context(), p.url)
		require.NoError(t, err)
		defer f.Close()
		return do(f)
	}
	for what, c := range map[string]struct {
		say []byte
		do  func(*fxfer.Files) error
	}{
		"two entries for one": {cat(announce(0, fileOf("a", 1), fileOf("b", 1)), answer(0)), func(f *fxfer.Files) error {
			_, err := f.Stat("a")
			return err
		}},
		"content of another digest": {cat(message(content, str("x")), answer(0)), func(f *fxfer.Files) error { return f.Read("a", io.Discard) }},
		"names with slashes for a pattern": {cat(announce(0, fileOf("../../x", 1)), answer(0)), func(f *fxfer.Files) error {
			_, err := f.Glob("", []string{"*"})
			return err
		}},
		"a message that is too long": {message(content, uv(1<<20), make([]byte, 1<<20)), func(f *fxfer.Files) error { return f.Read("a", io.Discard) }},
		"an end without an answer":   {message(refuse, uv(codeBusy), str("no")), func(f *fxfer.Files) error { return f.Mkdir("a", false) }},
	} {
		tried(t, server, "work on files: "+what, "answers to work are compared with the question and bounded")
		require.Error(t, call(func(l *line) { l.say(c.say) }, c.do), what)
	}
	tried(t, server, "work on files: figures and texts beyond the limit", "answers to work are compared with the question and bounded")
	err := call(func(l *line) { l.say(answer(codeNotEmpty), answer(codeTaken), answer(0)) }, func(f *fxfer.Files) error {
		require.ErrorContains(t, f.Mkdir("a", false), "x\ufffd[2J")
		require.ErrorIs(t, f.Move("a", "b", false), os.ErrExist)
		u, err := f.Usage("a")
		require.Positive(t, u.Bytes)
		require.Positive(t, u.Entries)
		return err
	})
	require.NoError(t, err)
}
