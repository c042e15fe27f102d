//go:build linux

package trees_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	treeFlag = flag.String("tree", "", "a real tree, such as /usr: TestRsyncAgrees works on a copy of it")
	edits    = flag.Int("edits", 150, "changes of TestRsyncAgrees between two transfers")
)

// agree checks that neither rsync nor this package sees a difference between two trees.
func agree(t *testing.T, a, b string) {
	t.Helper()
	require.Empty(t, differences(a, b, comparison{space: true}))
	rsync, err := exec.LookPath("rsync")
	if err != nil {
		t.Log("no rsync to ask")
		return
	}
	args := []string{"-aHAXSn", "--delete", "--checksum", "--itemize-changes"}
	if root() { // ordinary users see only user attributes; a filter for attributes has to include those that -A handles
		args = append(args, "--filter=-x "+hostLabels+"*", "--filter=-x system.*")
	}
	out, err := exec.Command(rsync, append(args, a+"/", b+"/")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

// TestRsyncAgrees sends a tree with all kinds of metadata, changes it, sends it again as a mirror,
// and gets it back. Each time rsync must find nothing to do.
func TestRsyncAgrees(t *testing.T) {
	t.Parallel()
	rng := random(t)
	base := scratch(t)
	source, target := filepath.Join(base, "source"), filepath.Join(base, "target")
	m := newMaker(t, rng, source)
	if *treeFlag == "" {
		m.everything()
	} else {
		m.copyOf(*treeFlag)
	}
	p := newPair(t, base)
	step := func(what, verb string, args ...string) {
		t.Helper()
		o := p.do(t, verb, args...)
		start := time.Now()
		from, to := source, target
		if verb == "get" {
			from, to = target, args[len(args)-1]
		}
		agree(t, from, to)
		t.Logf("%s: %d files in %.2f s: %d sent (%d bytes), %d unchanged, %d entries removed; comparing took %.2f s",
			what, o.Files, o.Seconds, o.Sent, o.Written, o.Unchanged, o.Removed, time.Since(start).Seconds())
	}
	send := func(what string, args ...string) {
		t.Helper()
		step(what, "send", append(args, source+"/", p.url("target"))...)
	}
	back := filepath.Join(base, "back")
	get := func(what string) {
		t.Helper()
		step(what, "get", "--delete", p.url("target/"), back)
	}

	send("first time")
	get("back")
	send("nothing new", "--delete")
	m.change(*edits)
	send("after changes", "--delete")
	get("back")
	m.change(*edits)
	send("by content", "--delete", "--checksum")
	get("back")
}

// copyOf makes a copy of another tree, and sets attributes on some of its files and folders.
func (m *maker) copyOf(tree string) {
	out, err := exec.Command("cp", "-a", "--sparse=auto", "--", tree+"/.", m.dir).CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	n := 0
	m.each(func(name string, d os.DirEntry) {
		if n++; d.Type()&os.ModeSymlink != 0 || n%50 != 0 {
			return
		}
		info, err := d.Info()
		require.NoError(m.t, err)
		m.xattr(name, "user.test", m.bytes(1+m.rng.IntN(200)))
		if n%100 == 0 {
			m.xattr(name, "system.posix_acl_access", acl(1000, 2000))
		}
		if n%150 == 0 && d.Type().IsRegular() && info.Mode()&0o111 != 0 {
			m.xattr(name, "security.capability", capability)
		}
	})
}
