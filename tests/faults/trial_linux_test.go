package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"lukechampine.com/blake3"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	lineRate = 100e6 // bit/s
	lineRTT  = 20 * time.Millisecond
	bigFile  = "a"
	port     = 7433

	// retryFor is the value of --retry-for for each command, in addition to the length of the
	// fault.
	retryFor = time.Minute
	// hangs is the time after which a command counts as hanging, in addition to the length of the
	// fault.
	hangs = 100 * time.Second
	// failedAtOnce is how many of the 22 files may fail before a hopeless transfer ends: the files
	// for which there is no space at the beginning.
	failedAtOnce = 2
	// toldWithin is the longest silence after which the user has to be told.
	toldWithin = 10 * time.Second
	// recovered is how many bytes have to arrive after a fault for the transfer to count as
	// recovered.
	recovered = 1 << 20
)

// outcome is how a trial ended.
type outcome string

const (
	byItself outcome = "by itself"          // the first command succeeded
	again    outcome = "same command again" // the first command was killed, or failed with a clear error, and the same command succeeded
	missed   outcome = "missed"             // the transfer was over before the fault
)

// fault is something that happens to a transfer under way.
type fault struct {
	name string
	what string // what happens
	do   func(t *trial) error
	lift func(t *trial) error // a repair before the command is run again; nil is none
	want []outcome
	says string // a regexp that the error, if any, has to match; "" means that the command is killed and prints no error

	lasts  time.Duration // length of the fault alone, if it is more than half a minute
	silent bool          // within toldWithin, the first command has to report that it hears nothing or tries again
	brief  bool          // the first command ends soon with the exit code of the target's disk, instead of failing with each file
	clock  bool          // the clocks of the hosts can be set
	disk   string        // "source" or "target" is on a disk that can fail; "ext4": the target is on a real file system
	own    bool          // the source changes
	mixed  bool          // a file may be of any version until the same command runs once more
}

// result is the result of a trial.
type result struct {
	Fault   string
	Seed    uint64
	Outcome outcome
	Push    bool
	Took    time.Duration // the whole trial
	Recover time.Duration // from the end of the fault until data flowed again
	Told    time.Duration // from the beginning of the fault, or the last data, until the user was told about the silence or another try; 0 is never
	Payload int64         // IP bytes that reached the receiver
	Said    string        // the error of the first command
	Wrong   int           // files whose content matches no version
	Partial int           // of these, files found before the end
	Left    int           // names that should not be there
	Hung    bool
	Problem string // what is wrong, "" for nothing

	err error // a broken promise, or the reason why the trial was impossible
}

// trial is one transfer with one fault.
type trial struct {
	ctx    context.Context
	rng    *rand.Rand
	folder *hosts.Folder
	size   bulk
	dir    string // of this trial, below the folder of all
	source string
	target string
	push   bool
	box    *lab.Lab
	x      *hosts.Fxfer
	disk   *sickDisk
	real   *realDisk
	clocks [2]*clock // of the server and of the client
	client *lab.Cmd
	known  map[string][]string // digests of the versions of each file, by path
	began  time.Time           // when the fault began
	over   time.Time           // when it was over
	retry  time.Duration       // --retry-for
	hangs  time.Duration       // when it hangs
}

// bench is what all trials share.
type bench struct {
	folder *hosts.Folder
	size   bulk
	next   chan int // numbers of trials
}

func (b *bench) try(ctx context.Context, f *fault, seed uint64) (r result) {
	n := <-b.next
	b.next <- n + 1
	t := &trial{ctx: ctx, rng: rand.New(rand.NewPCG(seed, 7)), folder: b.folder, size: b.size, dir: "t" + strconv.Itoa(n), push: seed%2 == 1,
		retry: retryFor + f.lasts, hangs: hangs + f.lasts}
	defer func() { r.err = errors.Join(r.err, os.RemoveAll(b.folder.Abs(t.dir))) }()
	t.source, t.target = "src", t.dir+"/dst/in"
	err := errors.Join(b.folder.Mkdir(t.dir), b.folder.Mkdir(t.dir+"/dst"), b.folder.Mkdir(t.dir+"/dst/in"))
	if err == nil && (f.own || f.disk == "source") {
		t.source = t.dir + "/src"
		err = os.CopyFS(b.folder.Abs(t.source), os.DirFS(b.folder.Abs("src")))
	}
	if err != nil {
		return result{err: err}
	}
	switch f.disk {
	case "ext4":
		if t.real, err = mountReal(b.folder.Abs(t.dir+"/disk"), b.folder.Abs(t.dir+"/dst")); err == nil {
			defer func() { r.err = errors.Join(r.err, t.real.unmount()) }()
			err = b.folder.Mkdir(t.dir + "/dst/in")
		}
		if err != nil {
			return result{err: err}
		}
	case "source", "target":
		shown := t.source
		if f.disk == "target" {
			shown = t.dir + "/dst"
		}
		backing := shown + "-backing"
		if err := errors.Join(os.Rename(b.folder.Abs(shown), b.folder.Abs(backing)), b.folder.Mkdir(shown)); err != nil {
			return result{err: err}
		}
		d, unmount, err := mount(b.folder.Abs(backing), b.folder.Abs(shown))
		if err != nil {
			return result{err: err}
		}
		t.disk = d
		defer func() {
			d.heal()
			r.err = errors.Join(r.err, unmount())
		}()
	}
	if t.box, err = lab.Start(lab.Link{Rate: lineRate, RTT: lineRTT, Seed: seed}); err != nil {
		return result{err: err}
	}
	defer func() { r.err = errors.Join(r.err, t.box.Close()) }()
	t.x = &hosts.Fxfer{Folder: b.folder, Server: t.box.Right, Client: t.box.Left, Addr: t.box.Right.Addr(), Port: port, Home: t.dir + "/home"}
	if f.clock {
		if err := t.clocked(); err != nil {
			return result{err: err}
		}
	}
	if err := t.x.Start(ctx, "--share", "src="+b.folder.Abs(t.source), "--share", "dst="+b.folder.Abs(t.dir+"/dst")); err != nil {
		return result{err: err}
	}
	if t.known, err = t.versions(nil); err != nil {
		return result{err: err}
	}
	return t.run(f)
}

// run takes the transfer to its end.
func (t *trial) run(f *fault) (r result) {
	r.Push = t.push
	t.began = time.Now()
	before := t.delivered()
	began := time.Now()
	seen := t.watch()

	first, err := t.start(t.source)
	if err != nil {
		r.err = err
		return r
	}
	t.client = first.cmd
	pause := time.Duration(t.rng.Int64N(int64(t.size.latest)))
	done := make(chan error, 1)
	hit := false
	go func() {
		for t.delivered() < before+recovered && !first.over() {
			t.pause(lookEvery)
		}
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-first.ended:
			done <- nil
			return
		case <-timer.C:
		}
		hit = f.do != nil
		t.began = time.Now()
		var err error
		if hit {
			err = f.do(t)
		}
		if errors.Is(err, errNoConnection) && first.over() {
			hit, err = false, nil
		}
		t.over = time.Now()
		done <- err
	}()
	err = first.wait(t)
	if fault := <-done; fault != nil {
		r.err = fmt.Errorf("do it: %w", fault)
	}
	text := first.said.String()
	if r.Hung = errors.Is(err, errHangs); r.Hung {
		r.err = errors.Join(r.err, err)
	}
	switch {
	case err == nil && !hit && f.do != nil:
		r.Outcome = missed
	case err == nil:
		r.Outcome = byItself
	case !r.Hung:
		r.Said = strings.ReplaceAll(strings.ReplaceAll(lastError(text), t.folder.Abs(t.dir)+"/", ""), t.dir+"/", "")
		if !regexp.MustCompile(f.says).MatchString(r.Said) || f.says == "" && r.Said != "" {
			r.err = errors.Join(r.err, fmt.Errorf("it says %q", text))
		}
	}
	if (err != nil || f.mixed) && f.lift != nil {
		r.err = errors.Join(r.err, f.lift(t))
	}
	known, wrongErr := t.versions(t.known)
	t.known = known
	r.Partial, _, r.err = t.look(r.err, wrongErr)
	if err != nil || f.mixed {
		if err != nil {
			t.over = time.Now()
		}
		second, startErr := t.start(t.source)
		if startErr != nil {
			r.err = errors.Join(r.err, startErr)
			return r
		}
		againErr := second.wait(t)
		r.Hung = r.Hung || errors.Is(againErr, errHangs)
		if againErr != nil {
			r.err = errors.Join(r.err, fmt.Errorf("the same command: %w: %q (the first: %q)", againErr, second.said.String(), text))
		} else if err != nil {
			r.Outcome = again
		}
	}
	if r.Outcome != missed && !slices.Contains(f.want, r.Outcome) && r.err == nil {
		r.err = fmt.Errorf("%s: %q", r.Outcome, text)
	}
	r.Took = time.Since(began)
	r.Payload = t.delivered() - before
	r.Recover = seen.since(t.over)
	if f.brief && r.Outcome == again {
		code := 7
		if t.push {
			code = 8
		}
		if n := strings.Count(text, "fxfer: failed: "); n > failedAtOnce || first.cmd.ProcessState.ExitCode() != code {
			r.err = errors.Join(r.err, fmt.Errorf("it ends with code %d, not %d, and %d failures: %q", first.cmd.ProcessState.ExitCode(), code, n, text))
		}
	}
	if at := first.told(); hit && at.After(t.began) {
		r.Told = at.Sub(seen.last(t.began, at))
	}
	if f.silent && r.Outcome != missed && (r.Told == 0 || r.Told > toldWithin) {
		r.err = errors.Join(r.err, fmt.Errorf("the user is told after %v: %q", r.Told, text))
	}
	now, versionErr := t.versions(nil)
	t.known = now // in the end, only this version is right
	r.Wrong, r.Left, r.err = t.look(r.err, versionErr)
	if missing := t.missing(); r.err == nil && missing > 0 {
		r.err = fmt.Errorf("%d files are missing", missing)
	}
	return r
}

// lastError returns the error of a command. If it printed several, it returns the last one.
func lastError(text string) (said string) {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, "fxfer: failed: "); ok && !strings.Contains(rest, " more: ") {
			said = strings.TrimSpace(rest)
		}
		if rest, ok := strings.CutPrefix(l, "fxfer: error: "); ok && said == "" {
			said = strings.TrimSpace(rest)
		}
	}
	return said
}

var errHangs = errors.New("it hangs")

// job is a running command of the client.
type job struct {
	cmd   *lab.Cmd
	said  *output
	ended chan struct{}
	err   error
}

// output collects the output of a command, and notes when the command first reported silence or
// another try.
type output struct {
	hosts.Output
	mu     sync.Mutex
	silent time.Time
}

func (o *output) Write(p []byte) (int, error) {
	said := func(text string) bool { return bytes.Contains(p, []byte(text)) }
	if said("nothing heard from") || said("trying again") || said(": resuming") {
		o.mu.Lock()
		if o.silent.IsZero() {
			o.silent = time.Now()
		}
		o.mu.Unlock()
	}
	return o.Output.Write(p)
}

func (j *job) told() time.Time {
	j.said.mu.Lock()
	defer j.said.mu.Unlock()
	return j.said.silent
}

// start starts the command with a source of the sender.
func (t *trial) start(source string) (*job, error) {
	args := []string{"get", "--retry-for", t.retry.String(), t.x.URL("src/"), t.target + "/"}
	if t.push {
		args = []string{"send", "--retry-for", t.retry.String(), source + "/", t.x.URL("dst/in/")}
	}
	c := t.folder.Prepare(t.ctx, t.x.Warm(args...))
	j := &job{cmd: c, said: &output{}, ended: make(chan struct{})}
	c.Stdout, c.Stderr = io.Discard, j.said
	if err := c.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(j.ended)
		j.err = c.Wait()
	}()
	return j, nil
}

// wait waits for the end of the command. The test fails if there is none.
func (j *job) wait(t *trial) error {
	deadline := time.NewTimer(t.hangs)
	defer deadline.Stop()
	select {
	case <-j.ended:
		return j.err
	case <-deadline.C:
		if t.disk != nil {
			t.disk.heal() // otherwise the process cannot even be killed
		}
		return fmt.Errorf("%w: %s", errHangs, j.stacks(t))
	}
}

// stacks ends a command that hangs and restarts its server. It returns what both have written, and where their
// goroutines were.
func (j *job) stacks(t *trial) string {
	_ = j.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended
	select {
	case <-j.ended:
	case <-time.After(10 * time.Second):
		_ = j.cmd.Process.Kill()
		<-j.ended
	}
	server := t.x.Process
	err := t.restart(syscall.SIGQUIT)
	return fmt.Sprintf("the client:\n%s\nthe server (%v):\n%s", j.said, err, &server.Stderr)
}

func (j *job) over() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// signal sends a signal to the process of one side.
func (t *trial) signal(sender bool, s syscall.Signal) error {
	p := t.x.Process.Cmd.Process
	if sender == t.push {
		p = t.client.Process
	}
	if err := p.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// kill ends one side at once. A server is started again a second later, as service managers do.
func (t *trial) kill(sender bool) error {
	if sender == t.push {
		return t.signal(sender, syscall.SIGKILL)
	}
	return t.restart(syscall.SIGKILL)
}

func (t *trial) restart(s os.Signal) error {
	t.x.Process.End(s)
	t.pause(time.Second)
	return t.x.Restart(t.ctx)
}

// pause waits for a part of a fault that lasts.
func (t *trial) pause(d time.Duration) {
	select {
	case <-t.ctx.Done():
	case <-time.After(d):
	}
}

// change changes the link.
func (t *trial) change(c lab.Change) error { return t.box.Set(c) }

func (t *trial) delivered() int64 {
	right, left := t.box.Counters()
	if t.push {
		return right.Bytes
	}
	return left.Bytes
}

// connection is a connection of the client.
type connection struct {
	port  uint16 // port of the client
	queue int64  // bytes in the sender's queue
}

var errNoConnection = errors.New("there is no connection")

// connections returns the established connections, those with the longest queue first.
func (t *trial) connections() (found []connection, err error) {
	host := t.box.Right
	if t.push {
		host = t.box.Left
	}
	err = host.Do(func() error {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + table)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line) // sl local remote st tx:rx …, proc_net_tcp in the kernel's documentation
				if len(f) < 5 || f[3] != "01" {
					continue
				}
				end := f[1]
				if !t.push {
					end = f[2]
				}
				p, err1 := strconv.ParseUint(end[strings.LastIndexByte(end, ':')+1:], 16, 16)
				q, err2 := strconv.ParseInt(f[4][:strings.IndexByte(f[4], ':')], 16, 64)
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				found = append(found, connection{uint16(p), q})
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b connection) int { return int(b.queue - a.queue) })
	if err == nil && len(found) == 0 {
		err = errNoConnection
	}
	return found, err
}

// reset kills connections of the client as if the peer had reset them.
func (t *trial) reset(cs ...connection) error {
	return t.box.Left.Do(func() error {
		for _, c := range cs {
			err := netlink.SocketDestroy(&net.TCPAddr{IP: t.box.Left.Addr().AsSlice(), Port: int(c.port)}, &net.TCPAddr{IP: t.box.Right.Addr().AsSlice(), Port: port})
			if err != nil && !errors.Is(err, syscall.ENOENT) { // the connection has ended
				return fmt.Errorf("destroy a socket: %w", err)
			}
		}
		return nil
	})
}

// block drops all packets of connections.
func (t *trial) block(cs ...connection) error {
	var ports []uint16
	for _, c := range cs {
		ports = append(ports, c.port)
	}
	return t.change(lab.Change{Blocked: &ports})
}

// rebind changes the ports of connections, as a NAT does.
func (t *trial) rebind(cs ...connection) error {
	var ports []uint16
	for _, c := range cs {
		ports = append(ports, c.port)
	}
	return t.change(lab.Change{Rebound: &ports})
}

// flow records how much data had arrived at what time.
type flow struct {
	stop chan struct{}
	done chan struct{}
	at   []time.Time
	n    []int64
}

const lookEvery = 50 * time.Millisecond

// watch records how much data arrives, until since is called.
func (t *trial) watch() *flow {
	f := &flow{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			f.at, f.n = append(f.at, time.Now()), append(f.n, t.delivered())
			select {
			case <-f.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return f
}

// since returns how long it took from then until data flowed again. It ends the recording.
func (f *flow) since(then time.Time) time.Duration {
	close(f.stop)
	<-f.done
	if then.IsZero() {
		return 0
	}
	from := int64(-1)
	for i, at := range f.at {
		if at.Before(then) {
			continue
		}
		if from < 0 {
			from = f.n[i]
		}
		if f.n[i] >= from+recovered {
			return at.Sub(then)
		}
	}
	return max(0, f.at[len(f.at)-1].Sub(then))
}

// last returns when data last arrived between from and to, or from if none did. Data in a kernel's
// buffers still arrives when its process is gone. Call last after since.
func (f *flow) last(from, to time.Time) time.Time {
	const data = 4 << 10 // acknowledgements alone are less
	for i := len(f.at) - 1; i > 0; i-- {
		if f.at[i].Before(to) && f.at[i].After(from) && f.n[i] >= f.n[i-1]+data {
			return f.at[i]
		}
	}
	return from
}

// versions adds the present content of the source's files to the known versions.
func (t *trial) versions(known map[string][]string) (map[string][]string, error) {
	root := t.folder.Abs(t.source)
	if _, err := os.Stat(root + "-backing"); err == nil {
		root += "-backing"
	}
	if known == nil {
		known = make(map[string][]string)
	}
	err := eachFile(root, func(rel, sum string) {
		if !slices.Contains(known[rel], sum) {
			known[rel] = append(known[rel], sum)
		}
	})
	return known, err
}

// place returns the folder of the receiver's files, as seen from this process.
func (t *trial) place() string {
	if root := t.folder.Abs(t.dir + "/dst-backing"); t.disk != nil {
		if _, err := os.Stat(root); err == nil {
			return root + "/in"
		}
	}
	return t.folder.Abs(t.target)
}

// look compares the target with the known versions. It counts files that match no version, and
// names that no file has.
func (t *trial) look(before error, more error) (wrong, left int, err error) {
	err = eachFile(t.place(), func(rel, sum string) {
		versions, known := t.known[rel]
		switch {
		case strings.Contains(rel, ".fxfer") || !known:
			left++
		case !slices.Contains(versions, sum):
			wrong++
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return wrong, left, errors.Join(before, more, err)
}

func (t *trial) missing() (n int) {
	for rel := range t.known {
		if _, err := os.Lstat(filepath.Join(t.place(), rel)); err != nil {
			n++
		}
	}
	return n
}

// eachFile calls f for each file below root with its BLAKE3 digest.
func eachFile(root string, f func(rel, sum string)) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil // the file is just getting its name
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer file.Close()
		h := blake3.New(32, nil)
		if _, err := io.Copy(h, file); err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		f(rel, fmt.Sprintf("%x", h.Sum(nil)))
		return err
	})
}
