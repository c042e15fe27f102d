//go:build linux

package trees_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// node is an entry of a random tree.
type node struct {
	path  string
	kind  kind
	size  int64
	holes bool
	text  uint64 // seed of the content
	to    string // the target of a symlink, or the other name of a hard link
	mode  uint32
	time  time.Time
	owner int // only if root runs the test
	xattr int // number of attributes
	acl   bool
}

type kind int

const (
	file kind = iota
	folder
	symlink
	hardlink
	copied // a file with the same content and time as another
	fifo
	device
	kinds
)

// extraLinks makes two names of one file in the target where the source has two files with equal
// content and time.
const extraLinks = false

var sizes = []int64{0, 1, 100, 4096, 70_000, 1 << 20, 1<<20 + 1, 3 << 20, 5<<20 + 7}

// drawTree draws a tree. Its entries are below the given folders or each other.
func drawTree(t *rapid.T, label, prefix string, folders []string, most int) (tree []node) {
	var files []int
	for i := range rapid.IntRange(0, most).Draw(t, label) {
		n := nodes.Draw(t, "node")
		n.path = filepath.Join(rapid.SampledFrom(folders).Draw(t, "in"), prefix+drawName(t, i))
		switch n.kind {
		case folder:
			folders = append(slices.Clone(folders), n.path)
		case file:
			files = append(files, len(tree))
		case hardlink, copied:
			if len(files) == 0 {
				n.kind = file
				break
			}
			other := tree[rapid.SampledFrom(files).Draw(t, "to")]
			n.to, n.size, n.text, n.holes, n.time = other.path, other.size, other.text, other.holes, other.time
		}
		tree = append(tree, n)
	}
	return tree
}

// nodes generates a node without its path.
var nodes = rapid.Custom(func(t *rapid.T) node {
	n := node{
		kind:  kind(max(0, rapid.IntRange(-6, int(kinds)-1).Draw(t, "kind"))), // most nodes are files and folders
		size:  rapid.SampledFrom(sizes).Draw(t, "size"),
		holes: rapid.IntRange(0, 4).Draw(t, "holes") == 4,
		text:  rapid.Uint64().Draw(t, "text"),
		to:    rapid.SampledFrom([]string{"x", "../..", "/etc/passwd", "nowhere/\xff\n"}).Draw(t, "link"),
		mode:  rapid.SampledFrom([]uint32{0o644, 0o600, 0o755, 0o444, 0o4755, 0o2711, 0o1777}).Draw(t, "mode"),
		time:  times.Draw(t, "time"),
		owner: rapid.IntRange(0, 2).Draw(t, "owner"),
		xattr: max(0, rapid.IntRange(-3, 2).Draw(t, "xattr")),
		acl:   rapid.IntRange(0, 5).Draw(t, "acl") == 5,
	}
	if n.kind == file && rapid.IntRange(0, 2).Draw(t, "really a folder") == 2 {
		n.kind = folder
	}
	if n.kind == folder {
		n.mode = rapid.SampledFrom([]uint32{0o755, 0o700, 0o555, 0o2775, 0o1777}).Draw(t, "folder mode")
	}
	if n.kind == device && !root() {
		n.kind = fifo
	}
	return n
})

var times = rapid.Custom(func(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(1, 4e9).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds"))
})

func drawName(t *rapid.T, i int) string {
	end := rapid.SampledFrom([]string{"", "\n", "\xff", " ", "\\", strings.Repeat("l", 240)}).Draw(t, "name")
	return fmt.Sprintf("%d%s", i, end)
}

// drawPrior draws the state of the target before the transfer. In place of each entry it has
// nothing, the same entry, or another one. It also has entries that the source lacks.
func drawPrior(t *rapid.T, tree []node) (prior []node) {
	folders := []string{"."}
	var files []string
	for _, n := range tree {
		if n.kind == folder {
			folders = append(folders, n.path)
		}
		switch rapid.SampledFrom([]string{"same", "missing", "older", "metadata", "kind", "link"}).Draw(t, "prior") {
		case "missing":
			continue
		case "older":
			n.text++
			n.time = times.Draw(t, "older time")
			n.size = rapid.SampledFrom(sizes).Draw(t, "older size")
			n.holes = !n.holes
			n.to += "x"
		case "metadata":
			other := nodes.Draw(t, "node")
			n.mode, n.owner, n.xattr, n.acl = other.mode, other.owner, other.xattr, other.acl
			if n.kind == folder {
				n.mode = 0o700
			}
		case "kind":
			path := n.path
			n = nodes.Draw(t, "node")
			n.path = path
			if n.kind == hardlink || n.kind == copied {
				n.kind = fifo
			}
		case "link": // a hard link instead of a copy, a copy instead of a hard link, or a link to another file
			switch {
			case n.kind == hardlink:
				n.kind = copied
			case n.kind == copied && extraLinks:
				n.kind = hardlink
			case n.kind == file && len(files) > 0:
				n.kind, n.to = hardlink, rapid.SampledFrom(files).Draw(t, "to")
			}
		}
		if n.kind == file {
			files = append(files, n.path)
		}
		prior = append(prior, n)
	}
	return append(prior, drawTree(t, "junk", "junk", folders, 8)...)
}

// build makes a tree. It leaves out entries below anything but a folder, and hard links to anything
// but a file.
func build(t require.TestingT, dir string, tree []node) {
	require.NoError(t, os.Mkdir(dir, 0o755))
	for i := range tree {
		n := &tree[i]
		name := filepath.Join(dir, n.path)
		if above, err := os.Lstat(filepath.Dir(name)); err != nil || !above.IsDir() {
			continue
		}
		switch n.kind {
		case file, copied:
			n.write(t, name)
		case folder:
			require.NoError(t, os.Mkdir(name, 0o755))
		case symlink:
			require.NoError(t, os.Symlink(n.to, name))
		case hardlink:
			to := filepath.Join(dir, n.to)
			if info, err := os.Lstat(to); err == nil && info.Mode().IsRegular() {
				require.NoError(t, os.Link(to, name))
			}
		case fifo:
			require.NoError(t, unix.Mkfifo(name, 0o600))
		case device:
			require.NoError(t, unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(1, uint32(n.text%7)))))
		}
	}
	for i := range slices.Backward(tree) { // folders come last
		if n := &tree[i]; n.kind != hardlink {
			n.dress(t, filepath.Join(dir, n.path))
		}
	}
	require.NoError(t, os.Chtimes(dir, time.Time{}, time.Unix(1_500_000_000, 1)))
}

func (n *node) write(t require.TestingT, name string) {
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(n.size))
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], n.text)
	content := rand.NewChaCha8(key)
	buf := make([]byte, 64<<10)
	for off := int64(0); off < n.size; off += int64(len(buf)) {
		_, _ = content.Read(buf)
		if n.holes && content.Uint64()%4 > 0 {
			continue
		}
		_, err := f.WriteAt(buf[:min(int64(len(buf)), n.size-off)], off)
		require.NoError(t, err)
	}
}

// dress sets the metadata of an entry if the entry was made.
func (n *node) dress(t require.TestingT, name string) {
	if _, err := os.Lstat(name); err != nil {
		return
	}
	if root() {
		require.NoError(t, os.Lchown(name, n.owner, n.owner*2))
	}
	if n.kind != symlink {
		require.NoError(t, unix.Chmod(name, n.mode|0o400))
	}
	set := func(attr string, value []byte) {
		if err := unix.Lsetxattr(name, attr, value, 0); !refused(err) {
			require.NoError(t, err)
		}
	}
	if n.kind == file || n.kind == copied || n.kind == folder {
		for i := range n.xattr {
			set(fmt.Sprintf("user.%d", i), fmt.Append(nil, n.text))
		}
		if n.acl && n.kind != folder {
			set("system.posix_acl_access", acl(1, 2))
		} else if n.acl {
			set("system.posix_acl_default", acl(3, 4))
		}
	}
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(n.time.UnixNano())}
	require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, name, ts, unix.AT_SYMLINK_NOFOLLOW))
}

// TestRandomTrees mirrors random trees onto other random trees. It kills either side once or twice,
// and runs the same command until it succeeds. Then the target equals the source and contains
// nothing else.
func TestRandomTrees(t *testing.T) {
	t.Parallel()
	if *seed != 0 {
		require.NoError(t, flag.Set("rapid.seed", fmt.Sprint(*seed)))
	}
	base := scratch(t)
	p := newPair(t, base)
	checks := 0
	var killed int
	rapid.Check(t, func(t *rapid.T) {
		defer p.survived(t)
		name := "target"
		if rapid.Bool().Draw(t, "new") { // new to the client, which has seen all others
			checks++
			name = fmt.Sprint("target-", checks)
		}
		source, target := filepath.Join(base, "source"), filepath.Join(base, name)
		defer clearTree(t, source)
		defer clearTree(t, target)
		tree := drawTree(t, "entries", "", []string{"."}, 40)
		if rapid.Bool().Draw(t, "there") {
			build(t, target, drawPrior(t, tree))
		}
		args := []string{"--delete", "--sync", rapid.SampledFrom([]string{"batch", "file", "none"}).Draw(t, "sync")}
		if rapid.IntRange(0, 3).Draw(t, "checksum") == 3 {
			args = append(args, "--checksum")
		}
		get := rapid.Bool().Draw(t, "get")
		start := func(more ...string) *running {
			if get {
				return p.start(t, "get", append(more, append(args, p.url("source/"), target)...)...)
			}
			return p.start(t, "send", append(more, append(args, source+"/", p.url(name))...)...)
		}
		kill := func() {
			moment := time.Duration(rapid.IntRange(0, 300).Draw(t, "moment")) * time.Millisecond
			server := rapid.Bool().Draw(t, "server")
			if early, o := p.killOne(t, start("--rate-limit", "300mbit"), server, moment); early {
				killed++
			} else {
				require.Zero(t, o.Code, "%v", o)
			}
		}
		leftovers := rapid.IntRange(0, 2).Draw(t, "left over") == 2
		if leftovers { // remains of a transfer of another state of the source
			build(t, source, drawPrior(t, tree))
			kill()
			clearTree(t, source)
		}
		build(t, source, tree)
		for range rapid.IntRange(0, 2).Draw(t, "kills") {
			kill()
		}
		var o *outcome
		for range 3 {
			if o = start().wait(t); o.Code == 0 {
				break
			}
			t.Logf("%v", o)
		}
		require.Zero(t, o.Code)
		require.Empty(t, o.Warnings)
		require.Empty(t, differences(source, target, comparison{leftovers: leftovers}))
	})
	t.Logf("%d transfers were killed", killed)
}
