package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/path/plan"
)

// fakeSystem is a host in memory.
type fakeSystem struct {
	sysctls map[string]string
	table   [][]byte // the routes
	boot    string
	netns   string
	fail    string // sysctl that can't be written
	shrink  string // sysctl for which the kernel stores another value
	keepers map[string]keeper
}

func (s *fakeSystem) readSysctl(name string) (string, error) {
	text, ok := s.sysctls[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return text, nil
}

func (s *fakeSystem) writeSysctl(name, text string) error {
	switch name {
	case s.fail:
		return fs.ErrPermission
	case s.shrink:
		text = "1"
	}
	if strings.Contains(name, "tcp_allowed") { // the kernel sorts them
		words := strings.Fields(text)
		slices.Sort(words)
		s.sysctls[name] = strings.Join(words, " ") + "\n"
		return nil
	}
	s.sysctls[name] = strings.Join(strings.Fields(text), "\t") + "\n"
	return nil
}

func (s *fakeSystem) routes() ([]Route, error) {
	var out []Route
	for _, raw := range s.table {
		r, err := describeRoute(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, *r)
	}
	return out, nil
}

func (s *fakeSystem) replaceRoute(raw []byte) error {
	i := slices.IndexFunc(s.table, func(have []byte) bool { return sameRoute(have, raw) })
	if i < 0 {
		return unix.ENOENT
	}
	s.table[i] = raw
	return nil
}

func (s *fakeSystem) identity() (boot, netns string, err error) { return s.boot, s.netns, nil }

func (s *fakeSystem) keeper(device string) keeper { return s.keepers[device] }

func (*fakeSystem) lock(string) (func(), error) { return func() {}, nil }

// messageOf returns a default route's netlink message.
func messageOf(priority uint32, metrics ...attr) []byte {
	head := []byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_DHCP, 0, unix.RTN_UNICAST, 0, 0, 0, 0}
	u32 := func(n uint32) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }
	attrs := []attr{{unix.RTA_OIF, u32(1)}, {unix.RTA_GATEWAY, []byte{192, 0, 2, 1}}, {unix.RTA_PRIORITY, u32(priority)}}
	if len(metrics) > 0 {
		attrs = append(attrs, attr{unix.RTA_METRICS, encodeAttrs(nil, metrics)})
	}
	return encodeAttrs(head, append(attrs, attr{unix.RTA_TABLE, u32(unix.RT_TABLE_MAIN)}))
}

// patient is a host with a Changer.
type patient struct {
	t    *testing.T
	c    *Changer
	sys  *fakeSystem
	conf string
}

func newPatient(t *testing.T) *patient {
	first, err := canonical(messageOf(100))
	require.NoError(t, err)
	second, err := canonical(messageOf(200, attr{unix.RTAX_MTU, []byte{0x78, 5, 0, 0}}))
	require.NoError(t, err)
	p := &patient{t: t, sys: &fakeSystem{
		sysctls: map[string]string{
			"net.ipv4.tcp_rmem":                       "4096\t131072\t6291456\n",
			"net.ipv4.tcp_sack":                       "0\n",
			"net.ipv4.tcp_allowed_congestion_control": "cubic reno\n",
		},
		table: [][]byte{first, second}, boot: "boot", netns: "net:[1]",
		keepers: map[string]keeper{"lo": {program: networkManager}},
	}}
	dir := t.TempDir()
	p.c = &Changer{home: dir, root: dir, sys: p.sys}
	p.conf = p.c.path(ConfFile)
	require.NoError(t, os.MkdirAll(filepath.Dir(p.conf), 0o755))
	return p
}

// findings returns what the rules find wrong with the patient.
func (p *patient) findings() []Finding {
	h := &Host{Sysctls: map[string]Sysctl{"net.ipv4.tcp_available_congestion_control": {"bbr cubic reno\n", false}}}
	for name, text := range p.sys.sysctls {
		h.Sysctls[name] = Sysctl{text, true}
	}
	var err error
	h.Routes, err = p.sys.routes()
	require.NoError(p.t, err)
	return Examine(h, wan).Findings
}

func (p *patient) apply() error {
	plan, err := p.c.PlanApply(p.findings())
	require.NoError(p.t, err)
	return p.c.Apply(plan)
}

func (p *patient) undo() *Plan {
	plan, err := p.c.PlanUndo()
	require.NoError(p.t, err)
	require.NoError(p.t, p.c.Undo(plan))
	return plan
}

// snapshot shows everything that a Changer may change, and all files below etc.
func (p *patient) snapshot() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.sys.sysctls)) {
		fmt.Fprintf(&b, "%s %q\n", name, p.sys.sysctls[name])
	}
	for _, raw := range p.sys.table {
		fmt.Fprintf(&b, "%x\n", raw)
	}
	require.NoError(p.t, filepath.WalkDir(p.c.path("/etc"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if strings.HasSuffix(path, ".network.d") {
				fmt.Fprintln(&b, path)
			}
			return err
		}
		info, err := d.Info()
		require.NoError(p.t, err)
		text, err := os.ReadFile(path)
		require.NoError(p.t, err)
		fmt.Fprintf(&b, "%s %v %q\n", path, info.Mode(), text)
		return nil
	}))
	return b.String()
}

func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s %v %q\n", e.Name(), info.Mode(), text)
	}
	return b.String()
}

func TestApplyAndUndo(t *testing.T) {
	const dropIn = networkDir + "/10-lo.network.d/90-fxfer.conf"
	for _, c := range []struct {
		name    string
		keeper  keeper
		file    string // what the keeper gets
		old     bool   // somebody has such files
		inApply string // a note
		inUndo  string
	}{
		{name: "nobody", inApply: "to keep it, put initcwnd and initrwnd where this route is configured"},
		{name: "nobody, old files", old: true, inApply: "to keep it, put initcwnd and initrwnd where this route is configured"},
		{name: "networkd", keeper: keeper{networkd, "/run/systemd/network/10-lo.network", 255}, file: dropIn,
			inApply: "sudo networkctl reload", inUndo: "sudo networkctl reload"},
		{name: "networkd, old files", keeper: keeper{networkd, "/etc/systemd/network/10-lo.network", 257}, file: dropIn, old: true,
			inApply: "sudo networkctl reload", inUndo: "sudo networkctl reload"},
		{name: "networkd of old", keeper: keeper{networkd, "/etc/systemd/network/10-lo.network", 254}, inApply: "since systemd 255"},
		{name: "NetworkManager", keeper: keeper{program: networkManager}, file: dispatcherFile, inApply: "whenever it connects lo"},
		{name: "NetworkManager, old files", keeper: keeper{program: networkManager}, file: dispatcherFile, old: true, inApply: "whenever it connects lo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPatient(t)
			p.sys.keepers = map[string]keeper{"lo": c.keeper}
			if c.old {
				require.NoError(t, os.WriteFile(p.conf, []byte("net.ipv4.tcp_sack = 0\n"), 0o640))
			}
			if c.old && c.file != "" {
				require.NoError(t, os.MkdirAll(filepath.Dir(p.c.path(c.file)), 0o755))
				require.NoError(t, os.WriteFile(p.c.path(c.file), []byte("mine\n"), 0o600))
			}
			before := p.snapshot()

			// A plan changes nothing.
			plan, err := p.c.PlanApply(p.findings())
			require.NoError(t, err)
			require.Equal(t, before, p.snapshot())
			require.NoFileExists(t, p.c.Saved())

			require.NoError(t, p.c.Apply(plan))
			require.Equal(t, "4096\t131072\t33554432\n", p.sys.sysctls["net.ipv4.tcp_rmem"])
			require.Equal(t, "bbr cubic reno\n", p.sys.sysctls["net.ipv4.tcp_allowed_congestion_control"])
			routes, err := p.sys.routes()
			require.NoError(t, err)
			require.Equal(t, []Metric{{Name: "initcwnd", Value: "32"}}, routes[0].Metrics)
			require.Equal(t, []Metric{{Name: "mtu", Value: "1400"}, {Name: "initcwnd", Value: "32"}}, routes[1].Metrics)
			written, err := os.ReadFile(p.conf)
			require.NoError(t, err)
			require.Contains(t, string(written), p.c.Saved())
			require.Contains(t, string(written), "\nnet.ipv4.tcp_allowed_congestion_control = cubic reno bbr\n"+
				"net.ipv4.tcp_rmem = 4096 131072 33554432\nnet.ipv4.tcp_sack = 1\n")

			require.Contains(t, strings.Join(plan.Notes, "\n"), c.inApply)
			if c.file != "" {
				lasts, err := os.ReadFile(p.c.path(c.file))
				require.NoError(t, err)
				require.Contains(t, string(lasts), p.c.Saved())
				require.Contains(t, plan.Diff, "file "+p.c.path(c.file))
				require.NotContains(t, strings.Join(plan.Notes, "\n"), "to keep it")
			}

			// Another run changes nothing.
			after := p.snapshot()
			saved, err := os.ReadFile(p.c.Saved())
			require.NoError(t, err)
			plan, err = p.c.PlanApply(p.findings())
			require.NoError(t, err)
			require.True(t, plan.Empty())
			require.NoError(t, p.c.Apply(plan))
			require.Equal(t, after, p.snapshot())
			again, err := os.ReadFile(p.c.Saved())
			require.NoError(t, err)
			require.Equal(t, saved, again)

			plan, err = p.c.PlanUndo()
			require.NoError(t, err)
			require.Equal(t, after, p.snapshot())
			require.Contains(t, strings.Join(plan.Notes, "\n"), c.inUndo)
			require.Equal(t, c.inUndo == "", len(plan.Notes) == 0, plan.Notes)
			require.NoError(t, p.c.Undo(plan))
			require.Equal(t, before, p.snapshot())
			require.NoFileExists(t, p.c.Saved())

			plan = p.undo()
			require.True(t, plan.Empty())
			require.Equal(t, before, p.snapshot())
		})
	}
}

// TestAnotherPath applies for one path and then for a longer one. Undo restores what was before
// the first.
func TestAnotherPath(t *testing.T) {
	p := newPatient(t)
	before := p.snapshot()
	require.NoError(t, p.apply())
	plan, err := p.c.PlanApply([]Finding{{Changes: []Change{{Sysctl: "net.ipv4.tcp_rmem", Value: "4096 131072 67108864"}}}})
	require.NoError(t, err)
	require.NoError(t, p.c.Apply(plan))
	written, err := os.ReadFile(p.conf)
	require.NoError(t, err)
	require.Contains(t, string(written), "net.ipv4.tcp_rmem = 4096 131072 67108864\nnet.ipv4.tcp_sack = 1\n")
	p.undo()
	require.Equal(t, before, p.snapshot())
}

type crash struct{}

// crashAt makes the Changer crash before its nth step, counted from 0, and reports whether it got
// there.
func (p *patient) crashAt(n int, f func() error) (crashed bool) {
	defer func() {
		p.c.at = nil
		if r := recover(); r != nil {
			require.Equal(p.t, crash{}, r)
			crashed = true
		}
	}()
	p.c.at = func(string) {
		if n == 0 {
			panic(crash{})
		}
		n--
	}
	require.NoError(p.t, f())
	return false
}

func TestCrashes(t *testing.T) {
	undo := func(p *patient) func() error {
		return func() error {
			plan, err := p.c.PlanUndo()
			require.NoError(t, err)
			return p.c.Undo(plan)
		}
	}
	for n, more := 0, true; more; n++ {
		p := newPatient(t)
		before := p.snapshot()
		more = p.crashAt(n, p.apply)
		p.undo()
		require.Equal(t, before, p.snapshot(), "apply crashed at %d, then undo", n)

		p = newPatient(t)
		p.crashAt(n, p.apply)
		require.NoError(t, p.apply())
		require.Empty(t, slices.DeleteFunc(p.findings(), func(f Finding) bool { return len(f.Changes) == 0 }))
		p.undo()
		require.Equal(t, before, p.snapshot(), "apply crashed at %d, then again", n)
		require.True(t, more || n >= 8, "%d steps", n)
	}
	for n, more := 0, true; more; n++ {
		p := newPatient(t)
		before := p.snapshot()
		require.NoError(t, p.apply())
		more = p.crashAt(n, undo(p))
		p.undo()
		require.Equal(t, before, p.snapshot(), "undo crashed at %d", n)

		p = newPatient(t)
		require.NoError(t, p.apply())
		p.crashAt(n, undo(p))
		require.NoError(t, p.apply())
		p.undo()
		require.Equal(t, before, p.snapshot(), "undo crashed at %d, then apply and undo", n)
	}
}

// TestSecondPathCrash crashes while one of a Changer's own values replaces another.
func TestSecondPathCrash(t *testing.T) {
	for n, more := 0, true; more; n++ {
		p := newPatient(t)
		before := p.snapshot()
		require.NoError(t, p.apply())
		plan, err := p.c.PlanApply([]Finding{{Changes: []Change{{Sysctl: "net.ipv4.tcp_rmem", Value: "4096 131072 67108864"}}}})
		require.NoError(t, err)
		more = p.crashAt(n, func() error { return p.c.Apply(plan) })
		require.Empty(t, p.undo().Notes)
		require.Equal(t, before, p.snapshot(), n)
	}
}

func TestFailureTakesBack(t *testing.T) {
	for _, broken := range []string{"net.ipv4.tcp_sack", "net.ipv4.tcp_rmem", "net.ipv4.tcp_allowed_congestion_control"} {
		for _, kind := range []string{"fail", "shrink"} {
			if kind == "shrink" && broken == "net.ipv4.tcp_sack" {
				continue // 1 is the right value
			}
			p := newPatient(t)
			before := p.snapshot()
			if kind == "fail" {
				p.sys.fail = broken
			} else {
				p.sys.shrink = broken
			}
			err := p.apply()
			require.ErrorContains(t, err, "set "+broken)
			if kind == "fail" {
				require.ErrorIs(t, err, fs.ErrPermission)
				require.Equal(t, before, p.snapshot())
				require.NoFileExists(t, p.c.Saved())
				continue
			}
			// Values that can't be restored are not forgotten.
			require.FileExists(t, p.c.Saved())
			p.sys.shrink = ""
			p.sys.sysctls[broken] = "4096\t131072\t33554432\n"
			if strings.Contains(broken, "allowed") {
				p.sys.sysctls[broken] = "bbr cubic reno\n"
			}
			p.undo()
			require.Equal(t, before, p.snapshot())
		}
	}
}

func TestSomebodyElse(t *testing.T) {
	p := newPatient(t)
	require.NoError(t, p.apply())
	p.sys.sysctls["net.ipv4.tcp_rmem"] = "4096\t131072\t16777216\n"
	other, err := withMetrics(p.sys.table[0], []Metric{{Name: "initcwnd", Value: "20"}})
	require.NoError(t, err)
	p.sys.table[0] = other
	p.sys.table = p.sys.table[:1]
	require.NoError(t, os.WriteFile(p.conf, []byte("mine\n"), 0o644))

	notes := strings.Join(p.undo().Notes, "\n")
	require.Contains(t, notes, "somebody changed it after apply: net.ipv4.tcp_rmem = 4096 131072 16777216; before apply: 4096 131072 6291456")
	require.Contains(t, notes, `initcwnd 20"; before apply: "default via 192.0.2.1`)
	require.Contains(t, notes, "metric 200\" is gone")
	require.Contains(t, notes, p.conf)
	require.Equal(t, "4096\t131072\t16777216\n", p.sys.sysctls["net.ipv4.tcp_rmem"])
	require.Equal(t, "0\n", p.sys.sysctls["net.ipv4.tcp_sack"])
	require.Equal(t, other, p.sys.table[0])
	text, err := os.ReadFile(p.conf)
	require.NoError(t, err)
	require.Equal(t, "mine\n", string(text))

	// Undo restores what somebody set between two runs.
	p = newPatient(t)
	require.NoError(t, p.apply())
	p.sys.sysctls["net.ipv4.tcp_rmem"] = "4096\t131072\t8388608\n"
	require.NoError(t, os.WriteFile(p.conf, []byte("mine\n"), 0o600))
	between := p.snapshot()
	require.NoError(t, p.apply())
	require.NotEqual(t, between, p.snapshot())
	p.undo()
	require.Equal(t, "4096\t131072\t8388608\n", p.sys.sysctls["net.ipv4.tcp_rmem"])
	text, err = os.ReadFile(p.conf)
	require.NoError(t, err)
	require.Equal(t, "mine\n", string(text))

	// A plan that no longer fits is rejected.
	p = newPatient(t)
	plan, err := p.c.PlanApply(p.findings())
	require.NoError(t, err)
	p.sys.sysctls["net.ipv4.tcp_sack"] = "2\n"
	before := p.snapshot()
	require.ErrorIs(t, p.c.Apply(plan), errChanged)
	require.Equal(t, before, p.snapshot())
	require.NoFileExists(t, p.c.Saved())

	plan, err = p.c.PlanApply(p.findings())
	require.NoError(t, err)
	require.NoError(t, p.c.Apply(plan))
	require.ErrorIs(t, p.c.Apply(plan), errChanged)
}

func TestPlaces(t *testing.T) {
	p := newPatient(t)
	require.NoError(t, p.apply())
	p.sys.netns = "net:[2]"
	_, err := p.c.PlanUndo()
	require.ErrorContains(t, err, "another network namespace")
	_, err = p.c.PlanApply(nil)
	require.ErrorContains(t, err, "another network namespace")
	p.sys.boot = "another boot" // numbers of namespaces mean nothing across boots
	_, err = p.c.PlanUndo()
	require.NoError(t, err)
	p.c.root = t.TempDir()
	_, err = p.c.PlanUndo()
	require.ErrorContains(t, err, "a file that apply does not write")

	// Files whose saved values are elsewhere are reported.
	p = newPatient(t)
	require.NoError(t, p.apply())
	require.NoError(t, os.Remove(p.c.Saved()))
	notes := p.undo().Notes
	require.Len(t, notes, 2)
	require.Contains(t, notes[0], p.conf)
	require.Contains(t, notes[1], dispatcherFile)
	require.Contains(t, notes[1], "FXFER_HOME")

	for _, text := range []string{
		"", "{", `{"version":3}`, `{"version":1,"sysctls":[{"name":"net.../../kernel.x"}]}`, `{"version":1,"sysctls":[{"name":"kernel.core_pattern"}]}`,
		`{"version":2,"sysctls":[{"name":"net.ipv4.tcp_sack","old":"0"}]}`, `{"version":2,"routes":[{"old":"AAAA"}]}`,
	} {
		require.NoError(t, os.WriteFile(p.c.Saved(), []byte(text), 0o600))
		_, err = p.c.PlanUndo()
		require.ErrorContains(t, err, p.c.Saved(), text)
	}
	require.NoError(t, os.Remove(p.c.Saved()))
	require.NoError(t, os.Remove(p.conf))
	require.NoError(t, os.Symlink("elsewhere", p.conf))
	p.sys.sysctls["net.ipv4.tcp_sack"] = "0\n"
	_, err = p.c.PlanApply(p.findings())
	require.ErrorContains(t, err, "not a regular file")
}

// TestFilesOfOthers checks that undo writes no file that apply would not.
func TestFilesOfOthers(t *testing.T) {
	p := newPatient(t)
	for path, ok := range map[string]bool{
		ConfFile: true, dispatcherFile: true, networkDir + "/a b.network.d/90-fxfer.conf": true,
		"/etc/passwd": false, networkDir + "/a.network.d/91-fxfer.conf": false, networkDir + "/a/b.network.d/90-fxfer.conf": false,
		networkDir + "/../a.network.d/90-fxfer.conf": false, networkDir + "/x/../a.network.d/90-fxfer.conf": false, "": false,
	} {
		text := fmt.Sprintf(`{"version":2,"boot":"boot","netns":"net:[1]","files":[{"path":%q,"old":{"content":"","mode":420},"ours":[""]}]}`, p.c.root+path)
		require.NoError(t, os.WriteFile(p.c.Saved(), []byte(text), 0o600))
		_, err := p.c.PlanUndo()
		_, err2 := p.c.PlanApply(nil)
		if ok {
			require.NoError(t, errors.Join(err, err2), path)
		} else {
			require.ErrorContains(t, err, "a file that apply does not write", path)
			require.ErrorContains(t, err2, "a file that apply does not write", path)
		}
	}
}

// TestVersion1 undoes what a release did that saved one file.
func TestVersion1(t *testing.T) {
	p := newPatient(t)
	before := p.snapshot()
	p.sys.sysctls["net.ipv4.tcp_sack"] = "1\n"
	require.NoError(t, os.WriteFile(p.conf, []byte("ours\n"), 0o644))
	text := fmt.Sprintf(`{"version":1,"boot":"boot","netns":"net:[1]","conf":{"path":%q,"old":null,"ours":["ours\n"]},`+
		`"sysctls":[{"name":"net.ipv4.tcp_sack","old":"0\n","ours":["1"]}],"routes":null}`, p.conf)
	require.NoError(t, os.WriteFile(p.c.Saved(), []byte(text), 0o600))
	require.NoError(t, p.apply())
	require.Empty(t, p.undo().Notes)
	require.Equal(t, before, p.snapshot())
}

func TestOverridden(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "sysctl.d", "90-fxfer.conf")
	require.NoError(t, os.Mkdir(filepath.Dir(conf), 0o755))
	for name, text := range map[string]string{
		"sysctl.d/10-early.conf": "net.ipv4.tcp_rmem=1 2 3\n", "sysctl.d/99-late.conf": "# net.ipv4.tcp_sack=1\n -net/ipv4/tcp_rmem = 1 2 3\n",
		"sysctl.d/99-late.txt": "net.ipv4.tcp_rmem=1 2 3\n", "sysctl.conf": "net.ipv4.tcp_sack=1\nvm.swappiness=1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.Equal(t, []string{
		filepath.Join(dir, "sysctl.conf") + " sets net.ipv4.tcp_sack, too, and wins at boot",
		filepath.Join(dir, "sysctl.d/99-late.conf") + " sets net.ipv4.tcp_rmem, too, and wins at boot",
	}, overridden(conf, []sysctlState{{Name: "net.ipv4.tcp_rmem"}, {Name: "net.ipv4.tcp_sack"}}))
}

func TestMessages(t *testing.T) {
	raw := messageOf(100)
	for n := range raw {
		_, err := canonical(raw[:n])
		if n > unix.SizeofRtMsg && (n-unix.SizeofRtMsg)%8 >= 4 { // within an attribute
			require.Error(t, err, n)
		}
	}
	_, err := canonical(append(bytes.Clone(raw), 3, 0, 1, 0))
	require.Error(t, err)
	_, err = withMetrics(raw, []Metric{{Name: "initcwnd", Value: "many"}})
	require.Error(t, err)
	_, err = withMetrics(raw, []Metric{{Name: "speed", Value: "1"}})
	require.Error(t, err)
}

// startLab returns a lab that is closed with the test. It skips the test if there can't be a lab
// without root.
func startLab(t *testing.T, link lab.Link) *lab.Lab {
	t.Helper()
	l, err := lab.Start(link)
	if errors.Is(err, lab.ErrUnsupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// examineHere examines the namespace of the calling thread. Its changes must concern that
// namespace only: it fails before it can change a value of the whole machine.
func examineHere(path plan.Path) (*Host, *Report, error) {
	h, err := Read()
	if err != nil {
		return nil, nil, err
	}
	r := Examine(h, path)
	for _, f := range r.Findings {
		for _, c := range f.Changes {
			if strings.HasPrefix(c.Sysctl, "net.core.") || c.Sysctl == "net.ipv4.tcp_mem" {
				return nil, nil, fmt.Errorf("%s would change %s, which is the whole machine's", f.ID, c.String())
			}
		}
	}
	return h, r, nil
}

// dumpNamespace returns every sysctl below net that this namespace can change, and every default
// route as the kernel reports it, a line each. The rest belongs to the whole machine, and others
// may change it meanwhile.
func dumpNamespace() ([]string, error) {
	var lines []string
	err := filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Mode()&0o200 == 0 {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			lines = append(lines, fmt.Sprintf("%s %q", path, text))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	routes, err := linuxSystem{"/"}.routes()
	for _, r := range routes {
		lines = append(lines, fmt.Sprintf("%s %x", r.String(), r.raw))
	}
	return lines, err
}

// layRoutes adds routes to a host of a lab: a default one that is plain, one with most attributes of a
// route, one of IPv6, and two to networks behind the gateway.
func layRoutes(via, via6 netip.Addr) error {
	link, err := netlink.LinkByName("wan0")
	if err != nil {
		return err
	}
	any4 := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	gw, index := net.IP(via.AsSlice()), link.Attrs().Index
	err = errors.Join(
		netlink.RouteAdd(&netlink.Route{Dst: any4, Gw: gw, LinkIndex: index}),
		netlink.RouteAdd(&netlink.Route{Dst: any4, Gw: gw, LinkIndex: index, Priority: 600, Protocol: unix.RTPROT_DHCP,
			MTU: 1400, MTULock: true, AdvMSS: 1300, InitRwnd: 20, RtoMin: 50, Congctl: "reno", Hoplimit: 9, QuickACK: 1}),
	)
	for third := range byte(2) {
		dst := &net.IPNet{IP: net.IPv4(198, 51, 100+third, 0).To4(), Mask: net.CIDRMask(24, 32)}
		err = errors.Join(err, netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: gw, LinkIndex: index}))
	}
	if _, none := os.Stat("/proc/sys/net/ipv6"); none != nil || err != nil {
		return err
	}
	any6 := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	return netlink.RouteAdd(&netlink.Route{Dst: any6, Gw: via6.AsSlice(), LinkIndex: index, Priority: 100, MTU: 1450})
}

// TestNamespace applies and undoes in the kernel. It crashes before each step in turn.
func TestNamespace(t *testing.T) {
	l := startLab(t, lab.Link{Rate: 1e9})
	require.NoError(t, l.Right.Do(func() error {
		if err := layRoutes(l.Left.Addr(), l.Left.Addr6()); err != nil {
			return err
		}
		sys := linuxSystem{"/"}
		for name, text := range map[string]string{
			"net.ipv4.tcp_rmem": "4096 131072 2097152", "net.ipv4.tcp_wmem": "4096 16384 1048576",
			"net.ipv4.tcp_window_scaling": "0", "net.ipv4.tcp_sack": "0",
		} {
			if err := sys.writeSysctl(name, text); err != nil {
				return err
			}
		}
		before, err := dumpNamespace()
		for n, more := 0, true; more && err == nil; n++ {
			more, err = crashInNamespace(t, sys, n, before)
			if err == nil && !more && n < 7 {
				err = fmt.Errorf("only %d steps", n)
			}
		}
		return err
	}))
}

// crashInNamespace applies, crashes before the nth step, and undoes.
func crashInNamespace(t *testing.T, sys system, n int, before []string) (crashed bool, err error) {
	dir := t.TempDir()
	p := &patient{t: t, c: &Changer{home: dir, root: dir, sys: sys}}
	p.conf = p.c.path(ConfFile)
	crashed = p.crashAt(n, func() error {
		_, r, err := examineHere(wan)
		if err != nil {
			return err
		}
		plan, err := p.c.PlanApply(r.Findings)
		if err != nil {
			return err
		}
		return p.c.Apply(plan)
	})
	if !crashed {
		h, r, err := examineHere(wan)
		if err != nil {
			return false, err
		}
		if _, left := ids(r); len(left) > 0 || len(h.Routes) < 4 {
			return false, fmt.Errorf("left to apply: %v, %d routes", left, len(h.Routes))
		}
		for _, r := range h.Routes {
			if r.metric("initcwnd") != wantInitCwnd || r.metric("initrwnd") != 0 && r.metric("initrwnd") < wantInitCwnd {
				return false, fmt.Errorf("route %v", r.String())
			}
		}
	}
	if notes := p.undo().Notes; len(notes) > 0 {
		return false, fmt.Errorf("notes: %v", notes)
	}
	if _, err := os.Stat(p.conf); err == nil {
		return false, errors.New("the file is still there")
	}
	after, err := dumpNamespace()
	if err == nil && !slices.Equal(after, before) {
		other := func(lines []string) func(string) bool {
			return func(line string) bool { return slices.Contains(lines, line) }
		}
		err = fmt.Errorf("crashed at %d: before\n%q\nafter\n%q", n, slices.DeleteFunc(slices.Clone(before), other(after)), slices.DeleteFunc(after, other(before)))
	}
	return crashed, err
}

func TestReadOnlyInNamespace(t *testing.T) {
	l := startLab(t, lab.Link{Rate: 1e9})
	require.NoError(t, l.Right.Do(func() error {
		h, _, err := examineHere(wan)
		if err != nil {
			return err
		}
		for name, want := range map[string]bool{
			"net.ipv4.tcp_rmem": true, "net.ipv4.tcp_available_congestion_control": false, "net.core.rmem_max": false,
		} {
			if s, ok := h.Sysctls[name]; ok && s.Writable != want {
				return fmt.Errorf("%s: writable %v", name, s.Writable)
			}
		}
		if len(h.Links) != 1 || h.Links[0].Name != "wan0" || h.Links[0].MTU != 1500 {
			return fmt.Errorf("links %+v", h.Links)
		}
		return nil
	}))
}
