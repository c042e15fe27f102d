package hostile

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var greedy = flag.Int("greedy", 8, "sessions of TestGreedy")

// greedyMemory is the most that the server may use, bytes.
const greedyMemory = 640 << 20

// TestGreedy: a client that is admitted makes the server hold what it can, with all sessions that it
// may have, over both transports. The server stays within its memory, on a machine with 1 GB, and
// serves another client meanwhile.
func TestGreedy(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	tried(t, client, "32 sessions that hold entries, answers and blocks", "memory of entries and streams is counted for each client; a message is counted decoded")
	tried(t, client, "32 sessions that get files, digests or lists, and neither answer nor end", "what a sender announces and the digests of deltas are counted, too; walks and lists know few names")
	// Each kind alone takes long. What they have in common is the memory that sessions share.
	kinds := map[string][]uint64{"push": {push}, "others": {pull, list, verify, pull}}
	if *greedy >= 32 {
		kinds = map[string][]uint64{"push": {push}, "pull": {pull}, "list": {list}, "verify": {verify}, "all": {push, pull, list, verify}}
	}
	for name, intents := range kinds {
		t.Run(name, func(t *testing.T) { beGreedy(t, intents) })
	}
}

// beGreedy has sessions of these intents in turn.
func beGreedy(t *testing.T, intents []uint64) {
	home, share := t.TempDir(), t.TempDir()
	hostile := newKey(t)
	other := t.TempDir()
	store, err := identity.OpenStore(other)
	require.NoError(t, err)
	otherKey, err := store.Key()
	require.NoError(t, err)
	admitted := fmt.Sprintf("%s *=rw\n%s *=rw\n", hostile.pin, identity.PinOf(otherKey.Public().(ed25519.PublicKey)))
	require.NoError(t, os.WriteFile(filepath.Join(home, "authorized_clients"), []byte(admitted), 0o600))
	serverStore, err := identity.OpenStore(home)
	require.NoError(t, err)
	serverKey, err := serverStore.Key()
	require.NoError(t, err)
	if intents[len(intents)-1] != push {
		makeLarge(t, share)
	}
	confine := memoryGroup(t, 1<<30)
	server := startServer(t, home, "--share", "data="+share)
	confine(server.Process.Pid)
	addr, err := net.ResolveTCPAddr("tcp", server.addr)
	require.NoError(t, err)

	var all sync.WaitGroup
	var lines sync.Mutex
	var open []*line
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	dial := func(quic bool) *line {
		c, err := dialBy(t, addr, hostile, quic)
		if err != nil { // there is no room
			return nil
		}
		l := newLine(t, c)
		lines.Lock()
		defer lines.Unlock()
		open = append(open, l)
		return l
	}
	streams, granted := 0, 0
	for n := range *greedy {
		quic := n%2 == 1
		all.Go(func() {
			control := dial(quic)
			if control == nil {
				return
			}
			intent := intents[n/2%len(intents)]
			if intent != push {
				lines.Lock()
				granted++
				lines.Unlock()
				take(control, byte(n), intent)
				return
			}
			control.say(request{session: byte(n), secret: 9, intent: push, share: "data", paths: []string{fmt.Sprint("s", n, "/")}}.bytes(), message(manifest, []byte{0, 0}))
			if kind, _ := control.next(); kind != welcome {
				return
			}
			lines.Lock()
			granted++
			lines.Unlock()
			for i := range 10 {
				if l := dial(quic); l != nil {
					all.Go(func() { // the server may read it when its entry is announced, or never
						_ = l.SetWriteDeadline(time.Now().Add(patience / 10))
						l.say(joining(byte(n), 9, uint64(1+i)), almost())
					})
					lines.Lock()
					streams++
					lines.Unlock()
				}
			}
			hoard(control)
		})
	}
	all.Wait()
	t.Logf("%d sessions, %d data streams, %.0f MiB at most", granted, streams, float64(server.peak(t))/(1<<20))
	require.Positive(t, granted)

	c, err := fxfer.NewClient(fxfer.Options{Home: other, Pin: string(identity.PinOf(serverKey.Public().(ed25519.PublicKey)))})
	require.NoError(t, err)
	source := filepath.Join(t.TempDir(), "honest")
	require.NoError(t, os.WriteFile(source, make([]byte, 3<<20), 0o600))
	u, err := fxfer.ParseURL("fxfer://" + server.addr + "/data/")
	require.NoError(t, err)
	_, err = c.Send(t.Context(), []string{source}, u, fxfer.Transfer{})
	require.NoError(t, err, "another client")
	peak := server.peak(t)
	t.Logf("the server used %.0f MiB at most", float64(peak)/(1<<20))
	require.LessOrEqual(t, peak, int64(greedyMemory))
}

// almost is a block of 1 MiB without its last byte, for an entry that was announced.
func almost() []byte {
	b := block{kind: 1, length: 1 << 20, raw: 1 << 20, payload: make([]byte, 1<<20-1)}
	return b.bytes()
}

// hoard announces files with long names that never come, asks for pongs, and reads nothing. The
// last message is the largest that a decoder takes.
func hoard(control *line) {
	// write fails once the server has read nothing for a while: it holds all that it wants to.
	write := func(b []byte) error {
		_ = control.SetWriteDeadline(time.Now().Add(patience / 10))
		_, err := control.Write(b)
		return err
	}
	long := strings.Repeat("n", 200)
	first := uint64(0)
	control.say(announce(first, entryOf(file, "big", iv(1<<30), uv(1), uv(1), []byte{20})))
	for first++; first < 30_000; {
		var batch [][]byte
		for range 256 {
			name := strconv.FormatUint(first+uint64(len(batch)), 10)
			batch = append(batch, fileOf(strings.Repeat(long+"/", 4)+name, 1<<16))
		}
		b := announce(first, batch...)
		if write(b) != nil {
			return
		}
		first += uint64(len(batch))
	}
	pings := bytes.Repeat(message(ping, iv(5)), 10_000)
	for range 20 {
		if write(pings) != nil {
			return
		}
	}
	same := append(binary.AppendUvarint(nil, 30_000), bytes.Repeat([]byte{0, 2}, 30_000)...)
	control.say(message(answers, same))
}

// makeLarge fills a share: with many long names in a folder and deep below, and with files of several
// blocks.
func makeLarge(t *testing.T, share string) {
	t.Helper()
	long := strings.Repeat("n", 200)
	deep := filepath.Join(share, "deep", long, long, long)
	flat := filepath.Join(share, "flat")
	require.NoError(t, os.MkdirAll(deep, 0o700))
	require.NoError(t, os.Mkdir(flat, 0o700))
	for i := range 400 * *greedy {
		require.NoError(t, os.Symlink("x", filepath.Join(deep, fmt.Sprint(long, i))))
	}
	for i := range 500 {
		name := filepath.Join(flat, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(name, nil, 0o600))
		require.NoError(t, os.Truncate(name, 4<<20))
	}
}

// take makes the server tell what the share has, and hold it. A session that lists or verifies reads
// nothing. One that gets files reads all and answers nothing, or claims to have old versions of all
// files, and sends digests of them without end.
func take(control *line, session byte, intent uint64) {
	deltas := intent == pull && session%4 > 1
	at := "deep/" + strings.Repeat(strings.Repeat("n", 200)+"/", 3)
	if deltas {
		at = "flat/"
	}
	control.say(request{session: session, secret: 9, intent: intent, share: "data", paths: []string{at}}.bytes())
	if intent != pull {
		return
	}
	for announced := uint64(0); deltas && announced <= 490; {
		kind, body := control.next()
		switch kind {
		case entries:
			_, n := binary.Uvarint(body)
			count, _ := binary.Uvarint(body[n:])
			announced += count
		case 0, refuse:
			return
		}
	}
	var reads sync.WaitGroup
	defer reads.Wait()
	reads.Go(func() {
		_ = control.SetReadDeadline(time.Now().Add(patience / 30))
		_, _ = io.Copy(io.Discard, control.r)
	})
	if !deltas {
		return
	}
	var all []byte
	for i := range uint64(490) { // Need, with digests of an old version as large as there can be
		all = append(all, cat(uv(1+i), []byte{9, 3}, uv(1<<40), uv(0))...)
	}
	control.say(message(answers, uv(490), all))
	digests := make([]byte, 8*4096)
	for i := range uint64(60 * *greedy) {
		_ = control.SetWriteDeadline(time.Now().Add(patience / 30))
		if _, err := control.Write(message(30, uv(1+i%490), uv(i<<24), []byte{12}, uv(4096), digests)); err != nil {
			return
		}
	}
}

// memoryGroup makes a cgroup with so much memory, until the test ends. The returned function puts a
// process into it. It puts it nowhere, and says so, if no cgroup can be made here.
func memoryGroup(t *testing.T, bytes int64) func(pid int) {
	t.Helper()
	for _, c := range []struct{ dir, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(c.dir, fmt.Sprint("fxfer-greedy-", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { // the process has ended
			require.Eventually(t, func() bool { return os.Remove(dir) == nil }, patience, time.Millisecond)
		})
		if os.WriteFile(filepath.Join(dir, c.limit), []byte(strconv.FormatInt(bytes, 10)), 0o644) != nil {
			continue
		}
		return func(pid int) {
			err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
			t.Logf("a cgroup with %d MiB: %v", bytes>>20, err)
		}
	}
	t.Log("no cgroup can be made here: only the server's peak memory is checked")
	return func(int) {}
}
