//go:build linux

package trees_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// version returns the content of a file of TestUnrulySources. It repeats one line, so that any part
// shows which version it is from.
func version(name string, n, lines int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%-20.20s version %8d line\n", name, n), lines)
}

// whole reports whether the content is one complete version of a file, and not a mixture of two.
func whole(content []byte) bool {
	if len(content) == 0 {
		return true
	}
	first, _, _ := bytes.Cut(content, []byte("\n"))
	return bytes.Equal(content, bytes.Repeat(append(first, '\n'), len(content)/(len(first)+1)))
}

// TestUnrulySources sends files that change, grow, shrink, vanish or become unreadable meanwhile.
// Each file that fails is reported, no file at the target is a mixture, and all other files arrive
// unchanged.
func TestUnrulySources(t *testing.T) {
	t.Parallel()
	rng := random(t)
	base := scratch(t)
	source, target := filepath.Join(base, "source"), filepath.Join(base, "target")
	m := newMaker(t, rng, source)

	// There are so many files of several blocks that the walk has to wait for them. Their folders
	// contain nothing else. Meanwhile other files change and are announced again.
	const folders, large = 4, 14
	for i := range folders {
		dir := fmt.Sprintf("calm-%d", i)
		m.folder(dir, 0o755)
		for j := range large {
			m.folder(fmt.Sprintf("%s/large-%d", dir, j), 0o755)
			m.file(fmt.Sprintf("%s/large-%d/file", dir, j), 2<<20+j, 0o644)
		}
		for j := range 50 {
			m.file(fmt.Sprintf("%s/small-%d", dir, j), 1000, 0o640)
		}
		m.folder(dir+"/deep", 0o755)
		m.file(dir+"/deep/file", 10, 0o600)
	}
	m.folder("unruly", 0o755)
	put := func(name string, n, lines int) {
		require.NoError(t, os.WriteFile(m.at("unruly/"+name), version(name, n, lines), 0o644))
	}
	put("rewritten-large", 0, 200_000) // 8 MB
	put("rewritten-small", 0, 1000)
	put("once", 0, 50_000)
	put("grows", 0, 60_000)
	put("shrinks", 0, 100_000)
	for i := range vanishing {
		put(fmt.Sprintf("vanishes-%d", i), 0, 60_000)
	}
	put("unreadable", 0, 100)
	m.folder("unruly/closed", 0o755)
	put("closed/below", 0, 100)
	m.touchFolders()
	for i := range folders {
		m.mode(fmt.Sprintf("calm-%d", i), 0o555)
	}
	m.mode("unruly/unreadable", 0)
	m.mode("unruly/closed", 0)

	p := newPair(t, base)
	if root() {
		p.other = true // a user who may not read everything
		require.NoError(t, ownAll(source, nobody))
		require.NoError(t, ownAll(p.home, nobody))
	}
	report := filepath.Join(p.home, "report")
	stop, stopped := make(chan struct{}), make(chan struct{})
	r := p.start(t, "send", "--rate-limit", "800mbit", "--report", report, source+"/", p.url("target"))
	go func() {
		defer close(stopped)
		unrest(m, filepath.Join(target, "unruly"), stop)
	}()
	o := r.wait(t)
	close(stop)
	<-stopped

	lines := reportOf(t, report)
	require.Equal(t, 3, o.Code, "%v", o)
	failed := map[string]string{}
	for name, ls := range lines {
		for _, l := range ls {
			if l.Outcome == "failed" {
				failed[name] = l.Error
			}
		}
	}
	for name, why := range failed {
		t.Logf("%s: %s", name, why)
		require.NotEmpty(t, why, name)
		require.True(t, strings.HasPrefix(name, "unruly/"), name)
		require.NoFileExists(t, filepath.Join(target, name))
	}
	require.EqualValues(t, len(failed), o.Failed)
	for _, name := range []string{"unreadable", "closed", "rewritten-large"} {
		require.Contains(t, failed, "unruly/"+name)
	}
	vanished := 0
	for i := range vanishing {
		if _, ok := failed[fmt.Sprintf("unruly/vanishes-%d", i)]; ok {
			vanished++
		}
	}
	require.Positive(t, vanished)

	// Everything that arrived is whole.
	arrived, err := names(filepath.Join(target, "unruly"))
	require.NoError(t, err)
	for _, name := range arrived {
		if name == "closed" {
			continue
		}
		require.NotContains(t, name, ".fxfer-")
		content, err := os.ReadFile(filepath.Join(target, "unruly", name))
		require.NoError(t, err)
		require.True(t, whole(content), "%s is torn", name)
		require.Equal(t, "committed", lines["unruly/"+name][0].Outcome)
	}
	for i := range folders {
		dir := fmt.Sprintf("calm-%d", i)
		require.Empty(t, differences(filepath.Join(source, dir), filepath.Join(target, dir), comparison{space: true}))
	}

	// When nothing changes and everything is readable, everything arrives.
	m.mode("unruly/unreadable", 0o600)
	m.mode("unruly/closed", 0o700)
	p.do(t, "send", "--delete", source+"/", p.url("target"))
	require.Empty(t, differences(source, target, comparison{space: true}))
}

// vanishing is the number of files that vanish.
const vanishing = 10

// unrest changes the files below unruly until stop is closed, more often than the transfer of a
// large file takes. When the folder target shows that files were found, some of them vanish.
func unrest(m *maker, target string, stop chan struct{}) {
	open := func(name string, flag int) *os.File {
		f, err := os.OpenFile(m.at("unruly/"+name), flag|os.O_WRONLY, 0)
		require.NoError(m.t, err)
		return f
	}
	large, small := open("rewritten-large", 0), open("rewritten-small", 0)
	grows, shrinks := open("grows", os.O_APPEND), open("shrinks", 0)
	defer func() {
		for _, f := range []*os.File{large, small, grows, shrinks} {
			_ = f.Close()
		}
	}()
	length := len(version("", 0, 1))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	gone := 0
	for n := 1; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		_, _ = large.WriteAt(version("rewritten-large", n, 200_000), 0)
		_, _ = small.WriteAt(version("rewritten-small", n, 1000), 0)
		_, _ = grows.Write(version("grows", 0, 10))
		_ = shrinks.Truncate(int64(max(0, 100_000-n*100) * length))
		if _, err := os.Lstat(target); err != nil {
			continue
		}
		if gone < vanishing {
			_ = os.Remove(m.at(fmt.Sprintf("unruly/vanishes-%d", gone)))
		}
		if gone++; gone == 3 { // like editors: another file takes the name
			tmp := m.at("once.new")
			_ = os.WriteFile(tmp, version("once", 1, 40_000), 0o644)
			_ = os.Rename(tmp, m.at("unruly/once"))
		}
	}
}

// ownAll gives everything below dir to a user.
func ownAll(dir string, user int) error {
	return filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err == nil {
			err = unix.Lchown(name, user, user)
		}
		return err
	})
}
