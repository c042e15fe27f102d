package faults

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var points = flag.Int("points", 1, "kills of each kind of transfer in TestKillPoints that find it under way")

// TestKillPoints kills one side of small transfers of each kind at random moments, sometimes again
// during the next attempt. A name always leads to the old content or to the new content. The same
// command completes the transfer, and the only remains are files that `fxfer partial rm` removes. A
// kill counts if data has begun to flow and the command has not ended.
func TestKillPoints(t *testing.T) {
	t.Parallel()
	t.Logf("-seed %d", *seed)
	content := func(n int) []byte {
		b := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16), 2}).Read(b)
		return b
	}
	file := map[string][]byte{"file": content(7<<20 + 99)}
	tree, old := map[string][]byte{"large": content(5 << 20)}, map[string][]byte{"large": content(5<<20 - 1)}
	for i := range 200 {
		name := fmt.Sprintf("%c/%c/%d", 'a'+i%3, 'a'+i%2, i)
		tree[name] = content(i * 331)
		if i%4 == 0 {
			old[name] = content(i*331 + 1)
		}
	}
	for i, w := range []workload{
		{name: "file", want: file, rate: "100mbit"},
		{name: "tree", want: tree, before: old, rate: "100mbit"},
		{name: "stdin", want: map[string][]byte{"stream": file["file"]}, stdin: "stream", rate: "100mbit"},
		{name: "get file", want: file, fetch: true, rate: "100mbit"},
		{name: "get tree", want: tree, before: old, fetch: true, rate: "100mbit"},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.killAt(t, *points, rand.New(rand.NewPCG(*seed, uint64(i))))
		})
	}
}

func (w workload) killAt(t *testing.T, points int, rng *rand.Rand) {
	source, target := t.TempDir(), t.TempDir()
	require.NoError(t, (&medium{files: w.want, folders: foldersOf(w.want)}).restore(source, nil))
	left, right := host{t.TempDir()}, host{t.TempDir()}
	share := target
	if w.fetch {
		share = source
	}
	srv := right.serve(t, share, "127.0.0.1:0")
	defer func() { srv.kill() }()
	require.NoError(t, left.command("ls", srv.url).Run())
	run := func(rate string) {
		out, err := within(time.Minute, w.command(left, "fxfer://"+srv.address()+"/data/", source, target, "batch", rate), 0)
		require.NoError(t, err, "%s", out)
	}
	run("") // the first run makes what later ones keep
	for _, name := range names(t, target) {
		require.NoError(t, os.RemoveAll(filepath.Join(target, name)))
	}
	c := w.command(left, "fxfer://"+srv.address()+"/data/", source, target, "batch", w.rate)
	require.NoError(t, c.Start())
	flows(t, c)
	began := time.Now()
	require.NoError(t, c.Wait())
	whole := time.Since(began) // duration of the data transfer

	done, kills, server := 0, 0, 0
	for tries := 0; done < points; {
		for _, name := range names(t, target) { // the share itself stays
			require.NoError(t, os.RemoveAll(filepath.Join(target, name)))
		}
		require.NoError(t, (&medium{files: w.before, folders: foldersOf(w.before)}).restore(target, nil))
		for range min(1+rng.IntN(3), points-done) {
			tries++
			require.Less(t, tries, 20+4*points, "kills come too late: %d of %d found it under way", done, tries)
			moment := time.Duration(rng.Int64N(int64(whole)))
			killServer := rng.IntN(2) == 1
			c := w.command(left, "fxfer://"+srv.address()+"/data/", source, target, "batch", w.rate)
			require.NoError(t, c.Start())
			flows(t, c)
			killed := make(chan bool, 1)
			timer := time.AfterFunc(moment, func() {
				if killServer {
					_ = srv.cmd.Process.Kill()
				} else {
					_ = c.Process.Kill()
				}
				killed <- true
			})
			err := c.Wait()
			if !timer.Stop() {
				<-killed
				kills++
				if err != nil {
					done++
				}
				if err != nil && killServer {
					server++
				}
			}
			if killServer {
				srv.kill()
				srv = right.serve(t, share, srv.address())
			}
			for name, b := range contentBelow(t, target) {
				if !strings.HasPrefix(path.Base(name), ".fxfer-") && !bytes.Equal(b, w.want[name]) && !bytes.Equal(b, w.before[name]) {
					t.Fatalf("after kill %d, at %v: %s has wrong content", tries, moment, name)
				}
			}
		}
		run("")
		left := contentBelow(t, target)
		for name := range left {
			if strings.HasPrefix(path.Base(name), ".fxfer-") {
				require.Equal(t, ".ckpt", filepath.Ext(name), "left behind after kill %d", kills)
			}
		}
		out, err := right.command("partial", "rm", "--older-than", "0s", target).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, w.want, contentBelow(t, target), "after kill %d", kills)
	}
	t.Logf("%d kills found the transfer under way, %d of the server and %d of the client, %d came too late: all exact; its data takes %v",
		done, server, done-server, kills-done, whole.Round(time.Millisecond))
	keepRow(t, "kills", w.name, server, done-server, kills-done)
}

// flows waits until a command has read and written so much that its data must have begun to flow,
// or until it has ended.
func flows(t *testing.T, c *exec.Cmd) {
	const begun = 256 << 10
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", c.Process.Pid))
		require.NoError(t, err) // nobody has waited for the process yet
		var read, written int64
		_, err = fmt.Sscanf(string(text), "rchar: %d\nwchar: %d", &read, &written)
		require.NoError(t, err)
		if read+written >= begun {
			return
		}
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		require.NoError(t, err)
		if _, rest, _ := strings.Cut(string(state), ") "); strings.HasPrefix(rest, "Z") {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
