package hostile

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// The intent to send ranges, and the size of the ranges of these tests: 64 blocks of 64 KiB.
const (
	ranges      = 14
	rangeSize   = 22
	codeNoSpace = 9
	// rangedBytes is the size of a file of three such ranges, the last of which has one block.
	rangedBytes = 2<<rangeSize + 5
)

const rangeGuard = "a range is checked against its file, and each block against the range; nothing gets a name before all ranges are compared"

// ranged begins a session with a data stream that sends a range to the share data.
func (s *site) ranged(t *testing.T, k key, number uint64) (control, data *line) {
	t.Helper()
	return s.rangedTo(t, k, request{share: "data", rangeLog: rangeSize, rangeNumber: number})
}

// rangedTo is ranged for another share, or other ranges.
func (s *site) rangedTo(t *testing.T, k key, q request) (control, data *line) {
	t.Helper()
	id := byte(sessions.Add(1))
	control = s.dial(t, k)
	q.session, q.secret, q.intent, q.paths = id, id, ranges, []string{""}
	control.say(q.bytes(), message(manifest, []byte{0, 0}))
	control.await(t, welcome)
	data = s.dial(t, k)
	data.say(joining(id, id, 1))
	return control, data
}

// rangedFile encodes the Entry of a file with such ranges, whose inode is 1.
func rangedFile(path string, flags byte, size, modified int64) []byte {
	return cat([]byte{file, flags}, str(path), iv(modified), uv(0o600), iv(size), uv(1), uv(1), []byte{16})
}

// TestRangeRequests: a session for a range that no file has, or that would do more than write, is
// refused.
func TestRangeRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	with := func(n int) []byte { // an option of Target
		b := make([]byte, 8)
		b[n] = 1
		return b
	}
	for name, c := range map[string]struct {
		q    request
		code uint64
	}{
		"a range of no size":                   {request{rangeLog: 0}, codeUnsupported},
		"a range of 1 byte":                    {request{rangeLog: 1, rangeNumber: 1}, codeUnsupported},
		"a range of 2 MiB":                     {request{rangeLog: 21}, codeUnsupported},
		"a range of 2 EiB":                     {request{rangeLog: 61}, codeUnsupported},
		"a range of 2^255 bytes":               {request{rangeLog: 255}, codeUnsupported},
		"a range behind the end of all files":  {request{rangeLog: 22, rangeNumber: 1 << 38}, codeUnsupported},
		"a range whose offset wraps":           {request{rangeLog: 22, rangeNumber: 1 << 42}, codeUnsupported},
		"the last number of all ranges":        {request{rangeLog: 22, rangeNumber: huge}, codeUnsupported},
		"a range that compares content":        {request{rangeLog: 22, target: with(0)}, codeUnsupported},
		"a range that leaves out newer files":  {request{rangeLog: 22, target: with(1)}, codeUnsupported},
		"a range of what is there":             {request{rangeLog: 22, target: with(2)}, codeUnsupported},
		"a range of what is not there":         {request{rangeLog: 22, target: with(3)}, codeUnsupported},
		"a range that is read back":            {request{rangeLog: 22, target: with(5)}, codeUnsupported},
		"a range with a folder for backups":    {request{rangeLog: 22, backup: "old"}, codeUnsupported},
		"a range where only reading is right":  {request{rangeLog: 22, share: "ro"}, codeRight},
		"a range in a share that is not there": {request{rangeLog: 22, share: "none"}, codeRight},
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, client, name, map[bool]string{true: rangeGuard, false: guardOf(c.code)}[c.code == codeUnsupported])
			l := s.dial(t, s.known)
			id := byte(sessions.Add(1))
			c.q.session, c.q.secret, c.q.intent, c.q.paths = id, id, ranges, []string{""}
			c.q.capability = []byte{}
			if c.q.share == "" {
				c.q.share = "data"
			}
			l.say(c.q.bytes(), message(manifest, []byte{0, 0}))
			code, text := l.refusal()
			require.EqualValues(t, c.code, code, text)
		})
	}
	s.honest(t)
}

// TestRangeBreaksProtocol: a session ends when something comes from outside of its range.
func TestRangeBreaksProtocol(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	payload := make([]byte, 1<<16)
	at := func(n uint64) []byte { return block{kind: 1, length: 1 << 16, num: n, payload: payload}.bytes() }
	end := func(size uint64, holes ...uint64) []byte {
		list := uv(uint64(len(holes) / 2))
		for _, n := range holes {
			list = append(list, uv(n)...)
		}
		return message(endEntry, uv(0), uv(size), make([]byte, 32), list)
	}
	whole, sparse := announce(0, rangedFile("a", 0, rangedBytes, 7)), announce(0, rangedFile("a", 2, rangedBytes, 7))
	for name, c := range map[string]struct{ say, data []byte }{
		"a block before its range":           {whole, at(63)},
		"a block of the range behind":        {whole, at(128)},
		"a block behind a file of ranges":    {whole, at(129)},
		"a range's block whose offset wraps": {whole, at(1 << 48)},
		"a whole file as a range":            {whole, block{kind: 3, length: 1 << 16, num: 64, payload: payload}.bytes()},
		"a patch in a range":                 {whole, block{kind: 1, flags: 4, length: 1 << 16, num: 64, payload: payload}.bytes()},
		"a range's end of another size":      {cat(whole, end(rangedBytes+1)), nil},
		"two ends of a range":                {cat(whole, end(rangedBytes), end(rangedBytes)), nil},
		"holes in a range without":           {cat(whole, end(rangedBytes, 64, 64)), nil},
		"holes that begin before a range":    {cat(sparse, end(rangedBytes, 63, 2)), nil},
		"holes that end behind a range":      {cat(sparse, end(rangedBytes, 127, 2)), nil},
		"holes far behind a range":           {cat(sparse, end(rangedBytes, 64, 1<<46)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, client, name, rangeGuard)
			control, data := s.ranged(t, s.known, 1)
			control.say(c.say)
			data.say(c.data)
			code, text := control.refusal()
			require.EqualValues(t, codeProtocol, code, text)
			require.NoFileExists(t, filepath.Join(s.root, "data", "a"))
		})
	}
	s.honest(t)
}

// TestRangeFails: an entry fails that has no such range, leads elsewhere, or ends with another digest.
// It gets no name.
func TestRangeFails(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	allHole := message(endEntry, uv(0), uv(rangedBytes), bytes.Repeat([]byte{1}, 32), uv(1), uv(64), uv(64))
	for name, c := range map[string]struct {
		say  []byte
		code uint64
	}{
		"a range behind the end":       {announce(0, rangedFile("a", 0, 1<<rangeSize, 7)), codeUnsupported},
		"a range of an empty file":     {announce(0, rangedFile("a", 0, 0, 7)), codeUnsupported},
		"a range of a stream":          {announce(0, rangedFile("a", 0, -1, 7)), codeUnsupported},
		"a range of a symlink":         {announce(0, entryOf(symlink, "a", str("../outside/secret"))), codeUnsupported},
		"a range of a hard link":       {announce(0, entryOf(hardlink, "a", str("secret"), uv(0))), codeUnsupported},
		"a range above the share":      {announce(0, rangedFile("../outside/a", 0, rangedBytes, 7)), codePath},
		"a range through a symlink":    {announce(0, rangedFile("way/a", 0, rangedBytes, 7)), 0},
		"a range of a partial file":    {announce(0, rangedFile(".fxfer-x", 0, rangedBytes, 7)), codePath},
		"a range of a file that is":    {announce(0, rangedFile("secret", 0, rangedBytes, 7)), codeTaken},
		"a range with another digest":  {cat(announce(0, rangedFile("a", 2, rangedBytes, 7)), allHole), codeIntegrity},
		"a range larger than the disk": {announce(0, rangedFile("a", 0, 1<<60, 7)), codeNoSpace},
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, client, name, rangeGuard)
			control, _ := s.ranged(t, s.known, 1)
			defer control.Close()
			control.say(c.say)
			if code := control.failure(t); c.code != 0 {
				require.EqualValues(t, c.code, code)
			}
			require.NoFileExists(t, filepath.Join(s.root, "data", "a"))
		})
	}
	got, err := os.ReadFile(filepath.Join(s.root, "data", "secret"))
	require.NoError(t, err)
	require.Equal(t, "do not touch", string(got))
	s.honest(t)
}

// TestLargeRangeFails: what a range takes that is refused follows what was sent of it, and not its size.
func TestLargeRangeFails(t *testing.T) {
	t.Parallel()
	tried(t, client, "a range of 8 TiB without data, with another digest", "what is undone of a range follows what came of it")
	s := serve(t, fxfer.ServerOptions{})
	const log = 43
	control, _ := s.rangedTo(t, s.known, request{share: "data", rangeLog: log})
	control.say(announce(0, rangedFile("a", 2, 1<<log, 7)), message(endEntry, uv(0), uv(1<<log), bytes.Repeat([]byte{1}, 32), uv(1), uv(0), uv(1<<(log-16))))
	require.EqualValues(t, codeIntegrity, control.failure(t))
	control.Close()
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(filepath.Join(s.root, "data"))
		return err == nil && len(left) == 2
	}, patience, time.Millisecond, "nothing is left of it")
	s.honest(t)
}

// TestRangesFillQuota: a client that holds a range open can't have more than its share's quota.
func TestRangesFillQuota(t *testing.T) {
	t.Parallel()
	tried(t, client, "fills a quota while it holds a range of a file that is nearly complete", "what is there of a file counts unless a session has claimed it")
	share := fxfer.Share{Name: "small", Dir: t.TempDir(), Rights: 3, Quota: 24 << 20}
	s := serve(t, fxfer.ServerOptions{Shares: []fxfer.Share{share}})
	c, err := fxfer.NewClient(fxfer.Options{Home: t.TempDir(), Transport: carrier})
	require.NoError(t, err)
	dir := t.TempDir() + "/"
	require.NoError(t, os.WriteFile(dir+"f", make([]byte, 20<<20), 0o600))
	require.NoError(t, os.Chtimes(dir+"f", time.Time{}, time.Unix(0, 7)))
	require.NoError(t, os.WriteFile(dir+"g", make([]byte, 8<<20), 0o600))
	require.NoError(t, os.WriteFile(dir+"h", make([]byte, 1), 0o600))
	var f fxfer.SourceFile
	require.NoError(t, fxfer.ListSource(t.Context(), dir, fxfer.Selection{}, func(found fxfer.SourceFile) error {
		if found.Path == "f" {
			f = found
		}
		return nil
	}))
	u := s.url(t, "")
	_, err = c.List(t.Context(), u)
	require.NoError(t, err)
	u.Token, u.Share = "", "small"
	send := func(name string) error {
		_, err := c.Send(t.Context(), []string{dir + name}, u, fxfer.Transfer{})
		return err
	}
	holder, _ := s.rangedTo(t, s.known, request{share: "small", rangeLog: rangeSize})
	holder.say(announce(0, cat([]byte{file, 0}, str("f"), iv(7), uv(0o600), iv(20<<20), uv(f.Inode), uv(1), []byte{17})))
	require.EqualValues(t, 1, holder.await(t, answers)[2])
	for n := int64(1); n < 5; n++ {
		_, err := c.SendRange(t.Context(), dir, fxfer.Range{File: f, Log: rangeSize, Number: n}, u, fxfer.Transfer{})
		require.NoError(t, err)
	}
	require.NoError(t, send("h"))
	require.NoError(t, os.WriteFile(dir+"h", make([]byte, 2), 0o600))
	require.NoError(t, send("h")) // something was replaced, so that the server counts what is there
	require.Equal(t, fxfer.KindRemoteDisk, fxfer.KindOf(send("g")))
	holder.Close()
	_, err = c.SendRange(t.Context(), dir, fxfer.Range{File: f, Log: rangeSize}, u, fxfer.Transfer{})
	require.NoError(t, err, "what was claimed is free again")
	require.FileExists(t, filepath.Join(share.Dir, "f"))
}

// TestRangeOfOthers: a client that knows what another one sends can hold up a range, as it can hold up
// a file. It can't replace what is complete, write what the other one is writing, or mix its file
// with the other's.
func TestRangeOfOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	c, err := fxfer.NewClient(fxfer.Options{Home: t.TempDir(), Transport: carrier})
	require.NoError(t, err)
	content := make([]byte, rangedBytes)
	_, _ = rand.Read(content)
	dir := t.TempDir() + "/"
	require.NoError(t, os.WriteFile(dir+"f", content, 0o600))
	require.NoError(t, os.Chtimes(dir+"f", time.Time{}, time.Unix(0, 7)))
	var f fxfer.SourceFile
	require.NoError(t, fxfer.ListSource(t.Context(), dir, fxfer.Selection{}, func(found fxfer.SourceFile) error { f = found; return nil }))
	u := s.url(t, "")
	send := func(number int64) {
		_, err := c.SendRange(t.Context(), dir, fxfer.Range{File: f, Log: rangeSize, Number: number}, u, fxfer.Transfer{})
		require.NoError(t, err)
		u.Token = ""
	}
	like := func(modified int64) []byte {
		return announce(0, cat([]byte{file, 0}, str("f"), iv(modified), uv(0o600), iv(rangedBytes), uv(f.Inode), uv(1), []byte{16}))
	}
	at := func(n uint64) []byte {
		return block{kind: 1, length: 1 << 16, num: n, payload: make([]byte, 1<<16)}.bytes()
	}
	verdict := func(l *line) byte { return l.await(t, answers)[2] }

	send(1)
	tried(t, client, "replaces a range that another client has completed", rangeGuard)
	control, data := s.ranged(t, s.known, 1)
	control.say(like(7))
	require.EqualValues(t, 5, verdict(control), "there is nothing to send")
	data.say(at(64), at(65))
	control.say(message(endEntry, uv(0), uv(rangedBytes), make([]byte, 32), uv(0)), message(endManifest, uv(1), uv(0)))
	control.await(t, finished)
	control.Close()

	tried(t, client, "writes a range at the same time as another client", rangeGuard)
	holder, _ := s.ranged(t, s.known, 0)
	holder.say(like(7))
	require.EqualValues(t, 1, verdict(holder))
	second, _ := s.ranged(t, s.known, 0)
	second.say(like(7))
	tried(t, client, "announces ranges of another file of the same name", rangeGuard)
	other, _ := s.ranged(t, s.known, 2)
	other.say(like(8))
	require.NoError(t, second.SetDeadline(time.Now().Add(3*patience)))
	require.NoError(t, other.SetDeadline(time.Now().Add(3*patience)))
	send(2) // others are free
	for _, l := range []*line{second, other} {
		// The holder says something now and then, and so stays: they wait, and fail.
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					holder.say(message(ping, iv(1)))
				}
			}
		}()
		require.EqualValues(t, codeBusy, l.failure(t))
		close(stop)
		l.Close()
	}
	holder.Close()
	send(0)
	got, err := os.ReadFile(filepath.Join(s.root, "data", "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))

	tried(t, client, "a range of a file that is in place", rangeGuard)
	control, _ = s.ranged(t, s.known, 1)
	control.say(like(7))
	require.EqualValues(t, 2, verdict(control), "it is the same")
	control.Close()
	control, _ = s.ranged(t, s.known, 1)
	control.say(like(8))
	body := control.await(t, answers)
	require.EqualValues(t, 4, body[2])
	code, _ := binary.Uvarint(body[3:])
	require.EqualValues(t, codeTaken, code)
}
