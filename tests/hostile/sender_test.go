package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// sessions numbers the sessions of all tests.
var sessions atomic.Uint32

// pushing begins a session with a data stream that sends to the share data.
func (s *site) pushing(t *testing.T) (control, data *line) {
	t.Helper()
	id := byte(sessions.Add(1))
	control = s.dial(t, s.known)
	control.say(request{session: id, secret: id, intent: push, share: "data", paths: []string{""}}.bytes(), message(manifest, []byte{0, 0}))
	control.await(t, welcome)
	data = s.dial(t, s.known)
	data.say(joining(id, id, 1))
	return control, data
}

// bomb is a zstd frame that claims to contain size bytes. It has n blocks, each of which repeats
// one byte 65,536 times.
func bomb(size uint32, n int) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, size)
	for i := range n {
		h := uint32(1<<1 | 1<<16<<3)
		if i == n-1 {
			h |= 1
		}
		b = append(b, byte(h), byte(h>>8), byte(h>>16), 0xaa)
	}
	return b
}

// breach names the guard against what a sender says on a data stream, or, if data is nil, on its
// control stream.
func breach(data []byte) string {
	switch {
	case data == nil:
		return "messages are checked against the manifest and each other; a breach ends the session"
	case len(data) > 1 && data[1] == 1:
		return "a compressed block gives at most one block, and its frame must declare that"
	case len(data) > 1 && data[1] == 2:
		return "ranges of data ascend, are disjoint, and lie within their block"
	}
	return "a block's header is checked against its entry before anything is read or written"
}

// TestSenderBreaksProtocol lets a client with the right to send break the rules of a transfer. Its
// session ends.
func TestSenderBreaksProtocol(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	three := announce(0, fileOf("a", 3<<16))
	small := bytes.Repeat([]byte{1}, 1<<16)
	zeros := make([]byte, 32)
	blk := func(b block) []byte { return b.bytes() }
	compressed := func(b []byte, raw uint32) []byte {
		return block{kind: 1, flags: 1, length: uint32(len(b)), raw: raw, payload: b}.bytes()
	}
	for name, c := range map[string]struct{ say, data []byte }{
		"entries with a gap":                 {announce(1, fileOf("a", 1)), nil},
		"entries again":                      {cat(three, three), nil},
		"entries of the last number":         {announce(huge, fileOf("a", 1)), nil},
		"more entries than bytes":            {message(entries, uv(0), uv(huge)), nil},
		"a path of 16 EiB":                   {message(entries, uv(0), uv(1), []byte{file, 0}, uv(huge)), nil},
		"an entry cut short":                 {message(entries, uv(0), uv(1), fileOf("a", 1)[:6]), nil},
		"an unknown kind":                    {announce(0, entryOf(99, "a")), nil},
		"a size of -2":                       {announce(0, entryOf(file, "a", iv(-2), uv(1), uv(1), []byte{16})), nil},
		"a size of 2 EiB":                    {announce(0, entryOf(file, "a", iv(1<<61), uv(1), uv(1), []byte{16})), nil},
		"blocks of 2 GiB":                    {announce(0, entryOf(file, "a", iv(1<<40), uv(1), uv(1), []byte{31})), nil},
		"blocks of 2^255 bytes":              {announce(0, entryOf(file, "a", iv(1<<40), uv(1), uv(1), []byte{255})), nil},
		"blocks of 1 byte":                   {announce(0, entryOf(file, "a", iv(1<<40), uv(1), uv(1), []byte{0})), nil},
		"an owner of 64 bits":                {message(entries, uv(0), uv(1), []byte{dir, 1}, str("d"), iv(0), uv(0), uv(huge)), nil},
		"more attributes than bytes":         {message(entries, uv(0), uv(1), []byte{dir, 4}, str("d"), iv(0), uv(0), uv(huge)), nil},
		"an attribute without name":          {message(entries, uv(0), uv(1), []byte{dir, 4}, str("d"), iv(0), uv(0), uv(1), str(""), str("")), nil},
		"two manifests":                      {message(manifest, []byte{0, 0}), nil},
		"an end before the end":              {cat(three, message(endManifest, uv(0), uv(0))), nil},
		"fewer entries than before":          {cat(three, message(endManifest, uv(1), uv(0)), message(endManifest, uv(0), uv(0))), nil},
		"a file's end of no file":            {message(endEntry, uv(9), uv(1), zeros, uv(0)), nil},
		"a file's end of another size":       {cat(three, message(endEntry, uv(0), uv(7), zeros, uv(0))), nil},
		"a file's end of 16 EiB":             {cat(three, message(endEntry, uv(0), uv(huge), zeros, uv(0))), nil},
		"holes that overlap":                 {cat(three, message(endEntry, uv(0), uv(3<<16), zeros, uv(2), uv(0), uv(2), uv(1), uv(1))), nil},
		"holes of none":                      {cat(three, message(endEntry, uv(0), uv(3<<16), zeros, uv(1), uv(0), uv(0))), nil},
		"holes that wrap":                    {cat(three, message(endEntry, uv(0), uv(3<<16), zeros, uv(1), uv(1<<47), uv(1<<63))), nil},
		"holes of a file without":            {cat(three, message(endEntry, uv(0), uv(3<<16), zeros, uv(1), uv(0), uv(1))), nil},
		"a comparison that nobody asked for": {cat(three, message(compared, uv(0), []byte{1})), nil},
		"an answer without question":         {message(extra, uv(1), uv(0)), nil},
		"an order to remove":                 {message(prune, uv(1), str(".")), nil},
		"a block type that there is not":     {three, blk(block{kind: 9, length: 1 << 16, payload: small})},
		"a block type of 0":                  {three, make([]byte, 64)},
		"a coding that there is not":         {three, blk(block{kind: 1, flags: 0x80, length: 1 << 16, payload: small})},
		"a block of 4 GiB":                   {three, blk(block{kind: 1, length: 1<<32 - 1})},
		"a block longer than any":            {three, blk(block{kind: 1, length: 1<<20 + 1})},
		"a block longer than its file's":     {three, blk(block{kind: 1, length: 1 << 17})},
		"a block of no bytes":                {three, blk(block{kind: 1})},
		"a block too short":                  {three, blk(block{kind: 1, length: 5, payload: []byte("short")})},
		"a block at a negative offset":       {three, blk(block{kind: 1, length: 1 << 16, num: huge})},
		"a block whose offset wraps":         {three, blk(block{kind: 1, length: 1 << 16, num: 1 << 48})},
		"a block beyond the end":             {three, blk(block{kind: 1, length: 1 << 16, num: 3})},
		"a block far beyond the end":         {three, blk(block{kind: 1, length: 1 << 16, num: 1 << 47})},
		"a block of the last entry of all":   {cat(three, message(endManifest, uv(1), uv(0))), blk(block{kind: 1, length: 1 << 16, index: huge})},
		"a whole file as one of its blocks":  {three, blk(block{kind: 3, length: 1 << 16, payload: small})},
		"a frame that gives less":            {three, compressed(small[:100], 99)},
		"a frame that says 4 GiB":            {three, compressed(bomb(1<<16, 1), 1<<32-1)},
		"a frame that is none":               {three, compressed(small[:100], 1<<16)},
		"a bomb of 640 MiB":                  {three, compressed(bomb(1<<16, 10_000), 1<<16)},
		"a bomb that says so in the frame":   {three, compressed(bomb(1<<31, 10_000), 1<<16)},
		"more ranges than bytes":             {three, blk(block{kind: 1, flags: 2, length: 4, payload: []byte{0xff, 0xff, 0xff, 0xff}})},
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, client, name, breach(c.data))
			control, data := s.pushing(t)
			control.say(c.say)
			data.say(c.data)
			code, text := control.refusal()
			require.EqualValues(t, codeProtocol, code, text)
			require.NoFileExists(t, filepath.Join(s.root, "data", "a"))
		})
	}
	s.honest(t)
}

// TestOtherSidesMessages lets a sender send messages that only a receiver sends, and unknown ones.
// The server ignores them.
func TestOtherSidesMessages(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	tried(t, client, "a sender says what only receivers say", "messages that only the other side may send are skipped")
	control, data := s.pushing(t)
	control.say(announce(0, fileOf("a", 5)),
		message(answers, uv(1), uv(0), []byte{1}, uv(0)), message(written, uv(1), uv(0), uv(0)), message(placed, uv(1), uv(0), uv(1)),
		message(finished), message(resend, uv(0), uv(1), uv(0), uv(1)), message(welcome, str("x"), str("y"), uv(huge)),
		message(streams, uv(huge), uv(1), uv(huge)), message(sample, uv(1), str("bytes"), iv(-1<<63)), message(folder, str("../outside"), uv(1), str("secret")),
		message(removed, []byte{1}, str("../outside/secret")), message(200, make([]byte, 1<<20)), message(255),
		message(hello), message(join), message(test))
	digest := blake3.Sum256([]byte("hello"))
	data.say(block{kind: 3, length: 5, digest: digest, payload: []byte("hello")}.bytes())
	code, _ := control.refusal()
	got, err := os.ReadFile(filepath.Join(s.root, "data", "a"))
	if err == nil { // it was not refused, or not yet
		require.Equal(t, "hello", string(got))
	} else {
		require.EqualValues(t, codeProtocol, code)
	}
	s.honest(t)
}

// failure waits until an entry succeeds or fails, and returns the code.
func (l *line) failure(t *testing.T) uint64 {
	t.Helper()
	for {
		kind, body := l.next()
		switch kind {
		case answers:
			if len(body) > 3 && body[2] == 4 { // one entry, with an index below 128
				code, _ := binary.Uvarint(body[3:])
				return code
			}
		case entryFailed:
			_, n := binary.Uvarint(body)
			code, _ := binary.Uvarint(body[n:])
			return code
		case 0, refuse:
			require.FailNow(t, "the session ended")
		}
	}
}

// TestNames lets a client send names that lead out of the share or are reserved. The entry fails,
// and the session continues.
func TestNames(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	for name, path := range map[string]string{
		"the folder above":           "..",
		"above":                      "../outside/new",
		"above, later":               "a/../../outside/new",
		"at its end above":           "a/..",
		"absolute":                   "/tmp/fxfer-hostile",
		"twice absolute":             "//tmp/fxfer-hostile",
		"nothing":                    "",
		"the target":                 ".",
		"a dot first":                "./a",
		"a dot inside":               "a/./b",
		"an empty element":           "a//b",
		"a slash last":               "a/",
		"a NUL":                      "a\x00b",
		"a NUL, then a way out":      "a\x00/../../outside/new",
		"an element of 256 bytes":    strings.Repeat("x", 256),
		"a partial file":             ".fxfer-0123456789abcdef.part",
		"a checkpoint, in capitals":  ".FXFER-0123456789ABCDEF.CKPT",
		"below a reserved name":      "d/.fxfer-x/y",
		"through a symlink":          "way/new",
		"over what a symlink is for": "way/secret",
		"through a file":             "secret/new",
	} {
		for what, e := range map[string][]byte{
			"file": fileOf(path, 5), "symlink": entryOf(symlink, path, str("../outside")), "folder": entryOf(dir, path),
		} {
			if what == "folder" && path == "." {
				continue // this name is allowed
			}
			t.Run(name+" of a "+what, func(t *testing.T) {
				tried(t, client, "a name: "+name, guardOf(codePath))
				control, _ := s.pushing(t)
				control.say(announce(0, e))
				code := control.failure(t)
				require.Contains(t, []uint64{codePath, 8}, code)
				control.say(message(ping, iv(1)))
				control.await(t, 16)
				names, err := os.ReadDir(filepath.Join(s.root, "data"))
				require.NoError(t, err)
				require.Len(t, names, 2, "nothing is made")
			})
		}
	}
	for name, link := range map[string]string{
		"above": "../outside/secret", "absolute": "/etc/passwd", "through a symlink": "way/secret", "of the sender's before": "secret", "NUL": "secret\x00",
	} {
		t.Run("a hard link "+name, func(t *testing.T) {
			tried(t, client, "a hard link "+name, "a hard link goes only to a file that the client may write, never to one in a snapshot")
			control, _ := s.pushing(t)
			control.say(announce(0, entryOf(hardlink, "h", str(link), uv(5))))
			control.failure(t)
			require.NoFileExists(t, filepath.Join(s.root, "data", "h"))
		})
	}
	s.honest(t)
}

// TestSymlinkRace replaces a folder of the share by a symlink to the outside and back again, while
// a client sends into it.
func TestSymlinkRace(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	tried(t, user, "exchanging a folder for a symlink while a client sends into it", "folders are held open, and never opened through a symlink")
	in := func(p string) string { return filepath.Join(s.root, "data", p) }
	require.NoError(t, os.Mkdir(in("r"), 0o700))
	require.NoError(t, os.Symlink("../outside", in("l")))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(in("r"), in("r2"))
			_ = os.Rename(in("l"), in("r"))
			_ = os.Rename(in("r"), in("l"))
			_ = os.Rename(in("r2"), in("r"))
		}
	}()
	control, data := s.pushing(t)
	digest := blake3.Sum256([]byte("hello"))
	const files = 300
	for i := range uint64(files) {
		control.say(announce(2*i, fileOf(fmt.Sprint("r/", i), 5), entryOf(dir, fmt.Sprint("r/d", i))))
		data.say(block{kind: 3, length: 5, index: 2 * i, digest: digest, payload: []byte("hello")}.bytes())
	}
	control.say(message(endManifest, uv(2*files), uv(0)))
	control.await(t, finished)
	close(stop)
	<-stopped
}

// TestDigestLies: a file does not get its name if its content does not match its digest.
func TestDigestLies(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	for name, c := range map[string]struct {
		size int64
		lie  block
	}{
		"a whole file of another digest": {5, block{kind: 3, length: 5, payload: []byte("hello")}},
		"a block of another digest":      {3 << 16, block{kind: 1, length: 1 << 16, payload: make([]byte, 1<<16)}},
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, client, name, "a file has its name only when all of it has the digest that the sender announced")
			control, data := s.pushing(t)
			control.say(announce(0, fileOf("lie", c.size)), message(endManifest, uv(1), uv(0)))
			for range 20 {
				data.say(c.lie.bytes())
			}
			require.EqualValues(t, codeIntegrity, control.failure(t))
			require.NoFileExists(t, filepath.Join(s.root, "data", "lie"))
		})
	}
	t.Run("two contents for one file", func(t *testing.T) {
		tried(t, client, "two contents for one file", "a block is written once")
		control, data := s.pushing(t)
		one, two := blake3.Sum256([]byte("first")), blake3.Sum256([]byte("other"))
		control.say(announce(0, fileOf("twice", 5)), message(endManifest, uv(1), uv(0)))
		data.say(block{kind: 3, length: 5, digest: one, payload: []byte("first")}.bytes(), block{kind: 3, length: 5, digest: two, payload: []byte("other")}.bytes())
		control.await(t, placed)
		got, err := os.ReadFile(filepath.Join(s.root, "data", "twice"))
		require.NoError(t, err)
		require.Contains(t, []string{"first", "other"}, string(got), "one of the two, whole")
	})
	s.honest(t)
}

// TestNoise sends messages that are almost right: some bytes are changed, left out or added.
func TestNoise(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	s := serve(t, fxfer.ServerOptions{})
	tried(t, client, "150 sessions with bytes changed, left out and put in", "decoders, see above; they are fuzzed as well")
	good := cat(request{session: 200, secret: 1, intent: push, share: "data", paths: []string{"noise/"}}.bytes(), message(manifest, []byte{0, 0}),
		announce(0, fileOf("a", 3<<16), entryOf(dir, "d"), entryOf(symlink, "l", str("x"))), message(endManifest, uv(3), uv(9)),
		message(endEntry, uv(0), uv(3<<16), make([]byte, 32), uv(0)))
	for range 150 {
		bad := bytes.Clone(good)
		for range 1 + r.IntN(4) {
			i := r.IntN(len(bad))
			switch r.IntN(3) {
			case 0:
				bad[i] = byte(r.Uint32())
			case 1:
				bad = append(bad[:i], bad[i+1:]...)
			default:
				bad = append(bad[:i], append([]byte{byte(r.Uint32())}, bad[i:]...)...)
			}
		}
		l := s.dial(t, s.known)
		l.say(bad)
		l.finish()
		l.refusal()
		l.Close()
	}
	s.honest(t)
}

// TestEmptyEntries announces half a million impossible entries. The memory of the server does not
// grow with them.
func TestEmptyEntries(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies the memory that is measured here")
	}
	s := serve(t, fxfer.ServerOptions{}) // not parallel, because it measures the memory of the process
	control, _ := s.pushing(t)
	tried(t, client, "half a million entries that cannot be", "32768 entries, and 64 MiB of their names, may be unresolved")
	runtime.GC() // after much garbage of earlier tests the next collection would come later
	start, most := heap(), uint64(0)
	go func() {
		const each = 1000
		batch := bytes.Repeat(entryOf(dir, ".."), each)
		for i := range uint64(500) {
			control.say(message(entries, uv(i*each), uv(each), batch))
		}
		control.say(message(endManifest, uv(500*each), uv(0)))
	}()
	for {
		require.NoError(t, control.SetDeadline(time.Now().Add(patience))) // for each message
		kind, body := control.next()
		require.NotZero(t, kind)
		require.NotEqual(t, byte(refuse), kind, "%q", body)
		if now := heap(); now > start {
			most = max(most, now-start)
		}
		if kind == finished {
			break
		}
	}
	t.Logf("%d MiB", most>>20)
	require.Less(t, most, uint64(192<<20))
}

func heap() uint64 {
	x := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(x)
	return x[0].Value.Uint64()
}
