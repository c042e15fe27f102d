package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ConfFile is the file from which the system sets a Changer's sysctls at boot.
const ConfFile = "/etc/sysctl.d/90-fxfer.conf"

const fileMark = "# Written by \"fxfer doctor apply\""

const (
	stateName = "doctor.json"
	lockName  = "doctor.lock"
)

// system is the host that a Changer changes. Tests use a fake.
type system interface {
	readSysctl(name string) (string, error)
	writeSysctl(name, text string) error
	routes() ([]Route, error)
	// replaceRoute replaces the route that the canonical message raw is a version of.
	replaceRoute(raw []byte) error
	// identity returns an id of the current boot, and one of the network namespace.
	identity() (boot, netns string, err error)
	// keeper returns who sets the routes of an interface after a reboot.
	keeper(device string) keeper
	// lock creates a file and waits until it can lock it. unlock releases the lock.
	lock(path string) (unlock func(), err error)
}

// Changer applies the changes that findings propose, and restores the values before. Several
// Changers, also in several processes, wait for each other.
type Changer struct {
	home string // folder of the state file
	root string // prefix of the paths of all other files: "/", except in tests
	sys  system

	at func(step string) // called before each step that changes something; for tests
}

func (c *Changer) statePath() string { return filepath.Join(c.home, stateName) }

func (c *Changer) path(p string) string { return filepath.Join(c.root, p) }

// filePatterns match the paths of all files that a Changer may write, besides its state.
func (c *Changer) filePatterns() []string {
	return []string{c.path(ConfFile), c.path(dispatcherFile), c.path(networkDir + "/*.network.d/" + dropInName)}
}

// mayWrite reports whether a path is one of a Changer's files.
func (c *Changer) mayWrite(path string) bool {
	return slices.ContainsFunc(c.filePatterns(), func(pattern string) bool {
		ok, _ := filepath.Match(pattern, path)
		return ok
	})
}

// Saved is the path of the file with the values before the changes.
func (c *Changer) Saved() string { return c.statePath() }

func (c *Changer) step(name string) {
	if c.at != nil {
		c.at(name)
	}
}

// Plan is what an Apply or an Undo will do. An empty plan does nothing.
type Plan struct {
	Diff  []string // for people: "- " before, "+ " after, other lines are headings
	Notes []string // what stays as it is, or does not last

	sysctls []step[string]
	routes  []step[[]byte]
	files   []step[*oldFile]
	was     []byte // the state file from which the plan was made
	state   *state // state to save before an Apply; nil in an Undo
	drop    bool   // remove the state afterwards
}

// step changes one value from one text to another.
type step[T any] struct {
	name     string
	from, to T
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool {
	return len(p.sysctls) == 0 && len(p.routes) == 0 && len(p.files) == 0 && !p.drop
}

// PlanApply plans the changes that the findings propose. It changes nothing.
func (c *Changer) PlanApply(findings []Finding) (*Plan, error) {
	old, err := loadState(c.statePath())
	if err != nil {
		return nil, err
	}
	boot, netns, err := c.sys.identity()
	if err != nil {
		return nil, err
	}
	if err := c.checkPlace(old, boot, netns); err != nil {
		return nil, err
	}
	p := &Plan{was: old.was()}
	next := &state{Version: stateVersion, Boot: boot, Netns: netns}
	if old != nil {
		next.Files, next.Sysctls, next.Routes = slices.Clone(old.Files), slices.Clone(old.Sysctls), slices.Clone(old.Routes)
	}
	for _, f := range findings {
		for _, change := range f.Changes {
			if change.Sysctl != "" {
				err = c.planSysctl(p, next, change)
			} else {
				err = c.planRoute(p, next, change)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if err := errors.Join(c.planConf(p, next), c.planRouteFiles(p, next)); err != nil {
		return nil, err
	}
	if !p.Empty() {
		p.state = next
	}
	return p, nil
}

// checkPlace rejects a state of another network namespace, since its values say nothing about
// this one, and a state that names files of others.
func (c *Changer) checkPlace(s *state, boot, netns string) error {
	if s == nil {
		return nil
	}
	if s.Boot == boot && s.Netns != netns {
		return fmt.Errorf("%s holds the values of another network namespace: run undo there first", c.statePath())
	}
	for _, f := range s.Files {
		if !c.mayWrite(f.Path) {
			return fmt.Errorf("%s names a file that apply does not write: %q", c.statePath(), f.Path)
		}
	}
	return nil
}

func (c *Changer) planSysctl(p *Plan, s *state, change Change) error {
	now, err := c.sys.readSysctl(change.Sysctl)
	if err != nil {
		return err
	}
	if sameValue(now, change.Value) {
		return nil
	}
	known := s.sysctl(change.Sysctl)
	switch {
	case known == nil:
		s.Sysctls = append(s.Sysctls, sysctlState{Name: change.Sysctl, Old: now})
		known = &s.Sysctls[len(s.Sysctls)-1]
	case !isOurs(known.Ours, now) && !sameValue(known.Old, now):
		known.Old = now // somebody changed it since
	}
	known.Ours = appendNew(known.Ours, change.Value)
	p.sysctls = append(p.sysctls, step[string]{change.Sysctl, now, change.Value})
	p.Diff = append(p.Diff, "- "+assignment(change.Sysctl, now), "+ "+assignment(change.Sysctl, change.Value))
	return nil
}

func (c *Changer) planRoute(p *Plan, s *state, change Change) error {
	r := change.Route
	to, err := withMetrics(r.raw, change.Metric)
	if err != nil {
		return err
	}
	if bytes.Equal(to, r.raw) {
		return nil
	}
	i := slices.IndexFunc(s.Routes, func(x routeState) bool { return sameRoute(x.Old, r.raw) })
	if i < 0 {
		s.Routes = append(s.Routes, routeState{Old: r.raw})
		i = len(s.Routes) - 1
	} else if x := &s.Routes[i]; !slices.ContainsFunc(x.Ours, func(o []byte) bool { return bytes.Equal(o, r.raw) }) {
		x.Old = r.raw
	}
	s.Routes[i].Ours = append(slices.Clone(s.Routes[i].Ours), to)
	next := r.with(change.Metric).String()
	p.routes = append(p.routes, step[[]byte]{r.Spec, r.raw, to})
	p.Diff = append(p.Diff, "- "+r.command()+" "+r.String(), "+ "+r.command()+" "+next)
	return nil
}

// planConf plans the new content of the conf file: all sysctls of the state, including those of
// earlier runs.
func (c *Changer) planConf(p *Plan, s *state) error {
	if len(p.sysctls) == 0 {
		return nil
	}
	conf := c.path(ConfFile)
	changed, err := c.planFile(p, s, conf, c.confText(s), 0o644)
	if changed {
		p.Notes = append(p.Notes, overridden(conf, s.Sysctls)...)
	}
	return err
}

// planRouteFiles plans the files that change routes again after a reboot: all routes of the state,
// including those of earlier runs.
func (c *Changer) planRouteFiles(p *Plan, s *state) error {
	if len(p.routes) == 0 {
		return nil
	}
	var routes []lasting
	for _, x := range s.Routes {
		ours := x.Ours[len(x.Ours)-1]
		old, err1 := describeRoute(x.Old)
		next, err2 := describeRoute(ours)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("read the saved routes: %w", err)
		}
		l := lasting{route: next, keeper: c.sys.keeper(next.Device)}
		l.set = slices.DeleteFunc(slices.Clone(next.Metrics), func(m Metric) bool { return slices.Contains(old.Metrics, m) })
		l.fresh = slices.ContainsFunc(p.routes, func(s step[[]byte]) bool { return bytes.Equal(s.to, ours) })
		routes = append(routes, l)
	}
	files, notes := routeFiles(c.head(), routes)
	p.Notes = append(p.Notes, notes...)
	for _, f := range files {
		changed, err := c.planFile(p, s, c.path(f.path), f.text, f.mode)
		if err != nil {
			return err
		}
		if changed {
			p.Notes = append(p.Notes, f.note)
		}
	}
	return nil
}

// planFile plans the new content of a file. It reports whether that differs from the present one.
// A file that is not executed keeps its mode.
func (c *Changer) planFile(p *Plan, s *state, path, text string, mode fs.FileMode) (changed bool, err error) {
	now, err := readPlain(path)
	if err != nil {
		return false, err
	}
	if now != nil && mode&0o111 == 0 {
		mode = now.Mode
	}
	to := &oldFile{Content: []byte(text), Mode: mode}
	if sameFile(now, to) {
		return false, nil
	}
	known := s.file(path)
	switch {
	case known == nil:
		s.Files = append(s.Files, fileState{Path: path, Old: now})
		known = &s.Files[len(s.Files)-1]
	case now != nil && !slices.Contains(known.Ours, string(now.Content)):
		known.Old = now // somebody made or changed it since
	}
	known.Ours = appendNew(known.Ours, text)
	p.files = append(p.files, step[*oldFile]{path, now, to})
	p.Diff = append(p.Diff, diffFile(path, now, to)...)
	return true, nil
}

// head is the comment at the beginning of each file.
func (c *Changer) head() string {
	return fileMark + "; \"fxfer doctor undo\" restores what was before.\n" +
		"# The values before are in " + c.statePath() + "\n"
}

func (c *Changer) confText(s *state) string {
	var b strings.Builder
	b.WriteString(c.head())
	sorted := slices.Clone(s.Sysctls)
	slices.SortFunc(sorted, func(a, b sysctlState) int { return strings.Compare(a.Name, b.Name) })
	for _, x := range sorted {
		b.WriteString(assignment(x.Name, x.Ours[len(x.Ours)-1]) + "\n")
	}
	return b.String()
}

// appendNew moves v to the end of values, or appends it.
func appendNew(values []string, v string) []string {
	values = slices.DeleteFunc(slices.Clone(values), func(x string) bool { return x == v })
	return append(values, v)
}

func assignment(name, text string) string {
	return name + " = " + strings.Join(strings.Fields(text), " ")
}

// diffFile shows a file that is created, removed or changed.
func diffFile(path string, from, to *oldFile) []string {
	out := []string{"file " + path}
	show := func(mark string, f *oldFile) {
		if f == nil {
			return
		}
		for line := range strings.Lines(string(f.Content)) {
			out = append(out, mark+strings.TrimSuffix(line, "\n"))
		}
	}
	show("- ", from)
	show("+ ", to)
	return out
}

// overridden returns notes about files that set the same sysctls and are read after conf at boot:
// see sysctl.d(5). sysctl --system reads /etc/sysctl.conf last.
func overridden(conf string, set []sysctlState) []string {
	dir := filepath.Dir(conf)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	later := []string{filepath.Join(filepath.Dir(dir), "sysctl.conf")}
	for _, e := range entries {
		if e.Name() > filepath.Base(conf) && strings.HasSuffix(e.Name(), ".conf") {
			later = append(later, filepath.Join(dir, e.Name()))
		}
	}
	var notes []string
	for _, path := range later {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			name, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "-"), "=")
			name = strings.ReplaceAll(strings.TrimSpace(name), "/", ".")
			if ok && slices.ContainsFunc(set, func(s sysctlState) bool { return s.Name == name }) {
				if note := fmt.Sprintf("%s sets %s, too, and wins at boot", path, name); !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
			}
		}
	}
	return notes
}

// errChanged says that the host has changed since the plan was made.
var errChanged = errors.New("changed since the plan was shown: try again")

// Apply carries out a plan of PlanApply. If a step fails, it reverts the steps before. Undo works
// after a crash at any point.
func (c *Changer) Apply(p *Plan) error {
	if p.Empty() {
		return nil
	}
	unlock, err := c.begin(p)
	if err != nil {
		return err
	}
	defer unlock()
	c.step("save")
	if err := p.state.save(c.statePath()); err != nil {
		return err
	}
	for _, do := range c.steps(p) {
		if err = do(); err != nil {
			break
		}
	}
	if err == nil {
		return nil
	}
	back := c.all(c.inverse(p))
	switch {
	case back != nil:
		return errors.Join(err, fmt.Errorf("revert the changes: %w", back))
	case p.was == nil:
		return errors.Join(err, removeDurably(c.statePath()))
	}
	return errors.Join(err, writeDurably(c.statePath(), p.was, 0o600))
}

// begin locks out other Changers and checks that the plan still fits.
func (c *Changer) begin(p *Plan) (unlock func(), err error) {
	if unlock, err = c.sys.lock(filepath.Join(c.home, lockName)); err != nil {
		return nil, err
	}
	s, err := loadState(c.statePath())
	if err == nil && !bytes.Equal(s.was(), p.was) {
		err = fmt.Errorf("%s: %w", c.statePath(), errChanged)
	}
	if err == nil {
		err = c.unchanged(p)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// unchanged checks that the values before, as the plan has them, are in force.
func (c *Changer) unchanged(p *Plan) error {
	for _, s := range p.sysctls {
		now, err := c.sys.readSysctl(s.name)
		if err != nil {
			return err
		}
		if now != s.from {
			return fmt.Errorf("%s: %w", s.name, errChanged)
		}
	}
	for _, s := range p.routes {
		there, err := c.hasRoute(s.from)
		if err != nil {
			return err
		}
		if !there {
			return fmt.Errorf("the route %q: %w", s.name, errChanged)
		}
	}
	for _, s := range p.files {
		now, err := readPlain(s.name)
		if err != nil {
			return err
		}
		if !sameFile(now, s.from) {
			return fmt.Errorf("%s: %w", s.name, errChanged)
		}
	}
	return nil
}

func sameFile(a, b *oldFile) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Mode == b.Mode && bytes.Equal(a.Content, b.Content)
}

// steps returns the changes of a plan, in order.
func (c *Changer) steps(p *Plan) []func() error {
	var out []func() error
	for _, s := range p.files {
		out = append(out, func() error {
			c.step("file")
			return putFile(s.name, s.to)
		})
	}
	for _, s := range p.sysctls {
		out = append(out, func() error {
			c.step(s.name)
			return c.putSysctl(s.name, s.to)
		})
	}
	for _, s := range p.routes {
		out = append(out, func() error {
			c.step("route")
			return c.putRoute(s.name, s.to)
		})
	}
	return out
}

// all carries out every step of a plan, even if others fail.
func (c *Changer) all(p *Plan) error {
	var errs []error
	for _, do := range c.steps(p) {
		errs = append(errs, do())
	}
	return errors.Join(errs...)
}

// putSysctl sets a value, and checks what the kernel made of it.
func (c *Changer) putSysctl(name, to string) error {
	if err := c.sys.writeSysctl(name, to); err != nil {
		return fmt.Errorf("set %s: %w", assignment(name, to), err)
	}
	now, err := c.sys.readSysctl(name)
	if err == nil && !sameValue(now, to) {
		err = fmt.Errorf("the kernel changed it to %s", strings.TrimSpace(now))
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", assignment(name, to), err)
	}
	return nil
}

func (c *Changer) putRoute(spec string, to []byte) error {
	err := c.sys.replaceRoute(to)
	if err == nil {
		var there bool
		if there, err = c.hasRoute(to); err == nil && !there {
			err = errors.New("the kernel stored something else")
		}
	}
	if err != nil {
		return fmt.Errorf("change the route %q: %w", spec, err)
	}
	return nil
}

func (c *Changer) hasRoute(raw []byte) (bool, error) {
	routes, err := c.sys.routes()
	return slices.ContainsFunc(routes, func(r Route) bool { return bytes.Equal(r.raw, raw) }), err
}

// putFile writes or removes a file. A folder for drop-ins goes with its last file.
func putFile(path string, f *oldFile) error {
	dir := filepath.Dir(path)
	if f == nil {
		err := removeDurably(path)
		if isDropIn(path) {
			_ = os.Remove(dir) // fails if others are in it
		}
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return writeDurably(path, f.Content, f.Mode)
}

// isDropIn reports whether a file is one for networkd.
func isDropIn(path string) bool { return strings.HasSuffix(filepath.Dir(path), ".network.d") }

// inverse returns the plan that reverts p, at whatever step p stopped.
func (c *Changer) inverse(p *Plan) *Plan {
	back := &Plan{}
	for _, s := range p.sysctls {
		if now, err := c.sys.readSysctl(s.name); err != nil || now != s.from {
			back.sysctls = append(back.sysctls, step[string]{s.name, s.to, s.from})
		}
	}
	for _, s := range p.routes {
		if there, err := c.hasRoute(s.from); err != nil || !there {
			back.routes = append(back.routes, step[[]byte]{s.name, s.to, s.from})
		}
	}
	for _, s := range p.files {
		if now, err := readPlain(s.name); err != nil || !sameFile(now, s.from) {
			back.files = append(back.files, step[*oldFile]{s.name, s.to, s.from})
		}
	}
	return back
}

// PlanUndo plans to restore all values before. It leaves alone what somebody has changed since,
// and the plan's notes say so. It changes nothing.
func (c *Changer) PlanUndo() (*Plan, error) {
	s, err := loadState(c.statePath())
	if err != nil {
		return nil, err
	}
	p := &Plan{was: s.was()}
	if s == nil {
		for _, pattern := range c.filePatterns() {
			left, _ := filepath.Glob(pattern)
			for _, path := range left {
				if now, err := readPlain(path); err == nil && now != nil && strings.Contains(string(now.Content), fileMark) {
					p.Notes = append(p.Notes, path+" is of an earlier apply with another FXFER_HOME, which has the values before: the file names the place")
				}
			}
		}
		return p, nil
	}
	boot, netns, err := c.sys.identity()
	if err != nil {
		return nil, err
	}
	if err := c.checkPlace(s, boot, netns); err != nil {
		return nil, err
	}
	for _, x := range s.Sysctls {
		c.undoSysctl(p, x)
	}
	if err := c.undoRoutes(p, s.Routes); err != nil {
		return nil, err
	}
	for _, x := range s.Files {
		if err := undoFile(p, x); err != nil {
			return nil, err
		}
	}
	p.drop = true
	return p, nil
}

func (c *Changer) undoSysctl(p *Plan, x sysctlState) {
	now, err := c.sys.readSysctl(x.Name)
	switch {
	case err != nil:
		p.Notes = append(p.Notes, fmt.Sprintf("left alone: %s, which can no longer be read", assignment(x.Name, x.Old)))
	case now == x.Old:
	case isOurs(x.Ours, now):
		p.sysctls = append(p.sysctls, step[string]{x.Name, now, x.Old})
		p.Diff = append(p.Diff, "- "+assignment(x.Name, now), "+ "+assignment(x.Name, x.Old))
	default:
		p.Notes = append(p.Notes, fmt.Sprintf("left alone, since somebody changed it after apply: %s; before apply: %s",
			assignment(x.Name, now), strings.Join(strings.Fields(x.Old), " ")))
	}
}

func (c *Changer) undoRoutes(p *Plan, saved []routeState) error {
	if len(saved) == 0 {
		return nil
	}
	routes, err := c.sys.routes()
	if err != nil {
		return err
	}
	for _, x := range saved {
		old, err := describeRoute(x.Old)
		if err != nil {
			return fmt.Errorf("read the saved routes: %w", err)
		}
		i := slices.IndexFunc(routes, func(r Route) bool { return sameRoute(r.raw, x.Old) })
		switch {
		case i < 0:
			p.Notes = append(p.Notes, fmt.Sprintf("left alone: the route %q is gone", old.Spec))
		case bytes.Equal(routes[i].raw, x.Old):
		case slices.ContainsFunc(x.Ours, func(o []byte) bool { return bytes.Equal(o, routes[i].raw) }):
			p.routes = append(p.routes, step[[]byte]{old.Spec, routes[i].raw, x.Old})
			p.Diff = append(p.Diff, "- "+old.command()+" "+routes[i].String(), "+ "+old.command()+" "+old.String())
		default:
			p.Notes = append(p.Notes, fmt.Sprintf("left alone, since somebody changed it after apply: the route %q; before apply: %q",
				routes[i].String(), old.String()))
		}
	}
	return nil
}

func undoFile(p *Plan, x fileState) error {
	now, err := readPlain(x.Path)
	switch {
	case err != nil:
		return err
	case sameFile(now, x.Old):
	case now == nil:
		p.Notes = append(p.Notes, "left alone: somebody removed "+x.Path+", which was there before apply")
	case slices.Contains(x.Ours, string(now.Content)):
		p.files = append(p.files, step[*oldFile]{x.Path, now, x.Old})
		p.Diff = append(p.Diff, diffFile(x.Path, now, x.Old)...)
		if isDropIn(x.Path) {
			p.Notes = append(p.Notes, "systemd-networkd forgets "+x.Path+" when this host starts again, or with: sudo networkctl reload")
		}
	default:
		p.Notes = append(p.Notes, "left alone, since somebody changed it after apply: "+x.Path)
	}
	return nil
}

// Undo carries out a plan of PlanUndo. It removes the state last, so that another Undo can finish
// after an error or a crash.
func (c *Changer) Undo(p *Plan) error {
	if p.Empty() {
		return nil
	}
	unlock, err := c.begin(p)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.all(p); err != nil {
		return err
	}
	c.step("forget")
	return removeDurably(c.statePath())
}
