package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	fleetGrid = "fleet"

	fleetWorkers = 8
	fleetPort    = 7435
	fleetLimit   = 30 * time.Minute // of a job
	fleetMoment  = 100 * time.Millisecond

	flowSettles  = 5 * time.Second  // flows that are there first have left their slow start by then
	flowAlone    = 5 * time.Second  // and are measured for so long alone
	fleetSettles = 10 * time.Second // a fleet sends beside them by then
	fleetBeside  = 15 * time.Second // and both are measured for so long
)

// fleetSize is how large the grid's lines and trees are.
type fleetSize struct {
	leg, trunk int64 // bit/s
	load       payload
	shardBytes int64

	small  int   // files of the mixed tree
	sparse int64 // bytes of its sparse files together
}

var (
	wholeFleet = fleetSize{leg: 200 * mbit, trunk: gbit, load: payload{files: 96, size: 40 * mb}, shardBytes: 160 * mb, small: 200_000, sparse: 40 * gb}
	quickFleet = fleetSize{leg: 20 * mbit, trunk: 100 * mbit, load: payload{files: 48, size: mb}, shardBytes: 2 * mb, small: 4000, sparse: 2 * gb}
)

// star is eight hosts that share the line to a server.
type star struct {
	*folder
	lab   *lab.Lab
	fxfer *hosts.Fxfer // the server, and the key of all workers
	conn  *nats.Conn
	jobs  jetstream.KeyValue
	undo  func() error
}

// newStar starts the server and the controller, on the same host. The caller closes the star.
func newStar(ctx context.Context, f *folder, size *fleetSize) (s *star, err error) {
	legs := make([]lab.Leg, fleetWorkers)
	for i := range legs {
		legs[i] = lab.Leg{Link: line(size.leg, 2*time.Millisecond, 1)}
	}
	l, err := lab.StartStar(legs, lab.Leg{Link: line(size.trunk, 18*time.Millisecond, 1)})
	if err != nil {
		return nil, err
	}
	undo, err := setUpHosts(l, cubicDefault)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the hosts: %w", err), l.Close())
	}
	s = &star{folder: f, lab: l, undo: undo}
	if err := s.serve(ctx, size); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *star) close() error {
	if s.conn != nil {
		s.conn.Close()
	}
	return errors.Join(s.lab.Close(), s.undo())
}

// serve starts the server and the controller, and connects to that. The controller knows the shared line by
// the name of each priority.
func (s *star) serve(ctx context.Context, size *fleetSize) error {
	s.fxfer = &hosts.Fxfer{Folder: s.Folder, Server: s.lab.Right, Client: s.lab.Left, Addr: s.lab.Right.Addr(), Port: fxferPort, Home: "home/fleet"}
	if err := s.fxfer.Start(ctx, "--share", "in=in"); err != nil {
		return err
	}
	const home = "home/controller"
	if err := s.Mkdir(home); err != nil {
		return err
	}
	start := hosts.Command{
		Host: s.lab.Right, Argv: []string{s.Abs("fxfer"), "fleet", "start", "--listen", ":" + strconv.Itoa(fleetPort)}, Env: []string{"FXFER_HOME=" + s.Abs(home)},
	}
	for _, p := range fleetPriorities {
		start.Argv = append(start.Argv, "--line", fmt.Sprintf("%s=%dbit,%s", p, size.trunk, p))
	}
	controller, err := s.Serve(ctx, start, fleetPort)
	if err == nil { // it has made its buckets by then
		err = controller.Await(ctx, func() (bool, error) { return strings.Contains(controller.Stderr.String(), "listening on"), nil })
	}
	if err != nil {
		return err
	}
	keys, err := fleet.LoadCredentials(s.credentials())
	if err != nil {
		return err
	}
	return s.connect(ctx, keys)
}

func (s *star) credentials() string { return s.Abs("home/controller/fleet/credentials.json") }

// Dial implements nats.CustomDialer: the controller is in the lab.
func (s *star) Dial(network, address string) (c net.Conn, err error) {
	err = s.lab.Right.Do(func() error {
		c, err = net.Dial(network, address)
		return err
	})
	return c, err
}

// connect connects to the controller as a member. docs/fleet.md has the names.
func (s *star) connect(ctx context.Context, keys *fleet.Credentials) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(keys.Certificate)) {
		return errors.New("the credentials have no certificate")
	}
	pair, err := nkeys.FromSeed([]byte(keys.Seed))
	if err != nil {
		return err
	}
	public, err := pair.PublicKey()
	if err != nil {
		return err
	}
	s.conn, err = nats.Connect(fmt.Sprintf("tls://%v:%d", s.lab.Right.Addr(), fleetPort), nats.Nkey(public, pair.Sign), nats.SetCustomDialer(s),
		nats.Secure(&tls.Config{RootCAs: pool, ServerName: "fxfer-fleet", MinVersion: tls.VersionTLS13}))
	if err != nil {
		return err
	}
	js, err := jetstream.New(s.conn)
	if err == nil {
		s.jobs, err = js.KeyValue(ctx, "fxfer-v1-jobs")
	}
	return err
}

// member returns a command of a member of the fleet.
func (s *star) member(args ...string) hosts.Command {
	return s.fxfer.Warm(append(append([]string{"fleet"}, args...), "--controller", fmt.Sprintf("%v:%d", s.lab.Right.Addr(), fleetPort), "--credentials", s.credentials())...)
}

// work starts a worker on each of the first n hosts, with more flags. end ends them.
func (s *star) work(ctx context.Context, n int, flags ...string) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var ended []chan struct{}
	end = func() {
		cancel()
		for _, c := range ended {
			<-c
		}
	}
	for i, host := range s.lab.Leaves[:n] {
		c := s.member(append([]string{"worker", "--name", fmt.Sprint("w", i), "--read", s.Abs("src")}, flags...)...)
		c.Host = host
		cmd := s.Prepare(ctx, c)
		var said hosts.Output
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		done := make(chan struct{})
		ended = append(ended, done)
		go func() { defer close(done); _ = cmd.Wait() }()
		for !strings.Contains(said.String(), "msg=working") {
			select {
			case <-done:
				return end, c.Failure(errors.New("it ended"), &said)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return end, nil
}

// progress of a job at one time.
type fleetProgress struct {
	at    time.Duration // since it was submitted
	fleet int64         // bytes on the shared line that came from workers
	flow  int64         // and from the flows beside
	state fleet.State
}

// submit has a folder sent, and returns what was to be seen meanwhile. It cancels the job after some time,
// unless that is 0.
func (s *star) submit(ctx context.Context, source, target string, opt fleet.Options, most time.Duration) (all []fleetProgress, err error) {
	ctx, cancel := context.WithTimeout(ctx, fleetLimit)
	defer cancel()
	now := time.Now().UTC()
	j := fleet.Job{
		Version: fleet.Version, ID: now.Format("20060102-150405") + "-" + fmt.Sprintf("%06x", rand.Uint32()>>8),
		Source: s.Abs(source) + "/", URL: s.fxfer.URL("in/" + target), Options: opt, Submitted: now, State: fleet.New,
	}
	text, err := json.Marshal(&j)
	if err != nil {
		return nil, err
	}
	began, before := time.Now(), s.crossed()
	if _, err := s.jobs.Create(ctx, j.ID, text); err != nil {
		return nil, err
	}
	for {
		entry, err := s.jobs.Get(ctx, j.ID)
		if err == nil {
			err = json.Unmarshal(entry.Value(), &j)
		}
		if err != nil {
			return nil, err
		}
		p := s.crossed()
		all = append(all, fleetProgress{time.Since(began), p.fleet - before.fleet, p.flow - before.flow, j.State})
		switch {
		case j.State == fleet.Failed || j.Dead > 0:
			return all, fmt.Errorf("the job: %d dead shards, %s", j.Dead, j.Reason)
		case j.State == fleet.Done:
			return all, nil
		case most > 0 && time.Since(began) > most:
			if out, err := s.Prepare(ctx, s.member("cancel", j.ID)).CombinedOutput(); err != nil {
				return all, fmt.Errorf("cancel the job: %w: %s", err, bytes.TrimSpace(out))
			}
			return all, nil
		}
		if err := pause(ctx, fleetMoment); err != nil {
			return all, err
		}
	}
}

// crossed returns the bytes so far that came over the workers' lines, and what else is on the shared one.
func (s *star) crossed() (p fleetProgress) {
	legs := s.lab.LegCounters()
	for _, leg := range legs[:fleetWorkers] {
		p.fleet += wire(leg[0])
	}
	p.flow = wire(legs[fleetWorkers][0]) - p.fleet
	return p
}

// middle returns the rate of the fleet on the wire, in bit/s, between the first and the last 5 % of what it sent.
func middle(all []fleetProgress) float64 {
	if len(all) == 0 {
		return 0
	}
	total := all[len(all)-1].fleet
	var from, to time.Duration
	for _, p := range all {
		switch {
		case p.fleet < total/20:
			from = p.at
		case to == 0 && p.fleet >= total-total/20:
			to = p.at
		}
	}
	rate, _ := during(all, from, to)
	return rate
}

// during returns the rates on the wire, in bit/s, of the fleet and of the flows beside it between two times.
func during(all []fleetProgress, from, to time.Duration) (rate, flow float64) {
	var first, last *fleetProgress
	for i := range all {
		switch p := &all[i]; {
		case p.at <= from:
			first = p
		case p.at <= to:
			last = p
		}
	}
	if first == nil || last == nil {
		return 0, 0
	}
	span := (last.at - first.at).Seconds()
	return float64(last.fleet-first.fleet) * 8 / span, float64(last.flow-first.flow) * 8 / span
}

// fleetRun is what a fleet did.
type fleetRun struct {
	workers int
	bytes   int64
	took    time.Duration // the whole job
	rate    float64       // on the shared line while it sends, bit/s
	paused  time.Duration // longest time in which the machine stood still
	failed  error
}

// run sends the load with n workers.
func (s *star) run(ctx context.Context, size *fleetSize, n int) (r fleetRun) {
	r.workers, r.bytes = n, size.load.bytes()
	r.failed = func() error {
		if err := s.Empty("in"); err != nil {
			return err
		}
		end, err := s.work(ctx, n)
		if end != nil {
			defer end()
		}
		if err != nil {
			return err
		}
		paused := hosts.Watch()
		defer func() { r.paused = paused() }()
		all, err := s.submit(ctx, s.loads[size.load].dir, "load", fleet.Options{ShardBytes: size.shardBytes}, 0)
		if err != nil {
			return err
		}
		r.took = all[len(all)-1].at
		r.rate = middle(all)
		return nil
	}()
	return r
}

// fleetPriorities are those that the shared line has, one after the other.
var fleetPriorities = []fxfer.Priority{fxfer.PriorityLow, fxfer.PriorityNormal}

// fleetNeighbours are cubic flows on the shared line, and what became of them beside eight workers.
type fleetNeighbours struct {
	priority fxfer.Priority // of the line
	flows    int
	alone    float64 // bit/s on the wire, of all flows together
	flow     float64 // and beside the fleet
	rate     float64 // of the fleet
	paused   time.Duration
	failed   error
}

func (n *fleetNeighbours) name() string {
	if n.flows == 1 {
		return fmt.Sprintf("%d workers, priority %s, beside 1 cubic flow", fleetWorkers, n.priority)
	}
	return fmt.Sprintf("%d workers, priority %s, beside %d cubic flows", fleetWorkers, n.priority, n.flows)
}

// beside measures flows alone, and then beside eight workers that share the line with them.
func (s *star) beside(ctx context.Context, size *fleetSize, n *fleetNeighbours) {
	n.failed = func() error {
		if err := s.Empty("in"); err != nil {
			return err
		}
		end, err := s.work(ctx, fleetWorkers, "--line", string(n.priority))
		if end != nil {
			defer end()
		}
		if err != nil {
			return err
		}
		paused := hosts.Watch()
		defer func() { n.paused = paused() }()
		stop, err := s.flow(ctx, n.flows)
		if err != nil {
			return err
		}
		defer stop()
		if n.alone, err = s.flowAlone(ctx); err != nil {
			return err
		}
		all, err := s.submit(ctx, s.loads[size.load].dir, "load", fleet.Options{ShardBytes: size.shardBytes}, fleetSettles+fleetBeside)
		if err != nil {
			return err
		}
		if took := all[len(all)-1].at; took < fleetSettles+fleetBeside {
			return fmt.Errorf("the job had ended after %v: the load is too small", took)
		}
		n.rate, n.flow = during(all, fleetSettles, fleetSettles+fleetBeside)
		return nil
	}()
}

// flow starts cubic flows from the host in the middle to the server.
func (s *star) flow(ctx context.Context, flows int) (stop func(), err error) {
	if _, err := s.Serve(ctx, hosts.Command{Host: s.lab.Right, Argv: []string{find("iperf3"), "-s", "-1", "-p", strconv.Itoa(iperfPort)}}, iperfPort); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := s.Prepare(ctx, hosts.Command{Host: s.lab.Middle[0], Argv: []string{
		find("iperf3"), "-c", s.lab.Right.Addr().String(), "-p", strconv.Itoa(iperfPort), "-C", "cubic", "-P", strconv.Itoa(flows), "-t", "3600",
	}})
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	return func() { cancel(); _ = cmd.Wait() }, nil
}

// flowAlone returns the rate of the flows on the wire when they are alone.
func (s *star) flowAlone(ctx context.Context) (float64, error) {
	if err := pause(ctx, flowSettles); err != nil {
		return 0, err
	}
	before, began := s.crossed(), time.Now()
	err := pause(ctx, flowAlone)
	return float64(s.crossed().flow-before.flow) * 8 / time.Since(began).Seconds(), err
}

// mixedResult is what became of a tree with everything in it.
type mixedResult struct {
	files, links int
	bytes        int64 // apparent size
	source       int64 // on the disk
	target       int64
	took, again  time.Duration // the first time, and when little had changed
	differences  string        // what rsync would still do
	failed       error
}

// mixed sends a tree of small and sparse files and hard links to a target that has more, and changes it
// and sends it again. rsync compares.
func (s *star) mixed(ctx context.Context, size *fleetSize) (r mixedResult) {
	r.failed = func() error {
		if err := errors.Join(s.Empty("in"), s.Empty("src")); err != nil {
			return err
		}
		clear(s.loads)
		if err := s.plantMixed(ctx, size, &r); err != nil {
			return err
		}
		end, err := s.work(ctx, fleetWorkers)
		if end != nil {
			defer end()
		}
		if err != nil {
			return err
		}
		opt := fleet.Options{Delete: true, ShardFiles: int64(size.small / 40), ShardBytes: size.sparse / 8}
		for _, took := range []*time.Duration{&r.took, &r.again} {
			all, err := s.submit(ctx, "src/mixed", "mixed", opt, 0)
			if err != nil {
				return err
			}
			*took = all[len(all)-1].at
			out, err := exec.CommandContext(ctx, "rsync", "-aHAXn", "--delete", "-i", s.Abs("src/mixed")+"/", s.Abs("in/mixed")+"/").CombinedOutput()
			if err != nil {
				return fmt.Errorf("rsync: %w: %s", err, bytes.TrimSpace(out))
			}
			r.differences += string(out)
			if took == &r.took {
				if err := s.changeMixed(size); err != nil {
					return err
				}
			}
		}
		if r.source, err = diskUse(s.Abs("src/mixed")); err != nil {
			return err
		}
		r.target, err = diskUse(s.Abs("in/mixed"))
		return err
	}()
	return r
}

// plantMixed makes the tree, and what the target has before.
func (s *star) plantMixed(ctx context.Context, size *fleetSize, r *mixedResult) error {
	tree := &load{payload: payload{files: size.small, size: kib, folders: size.small / 1000}, dir: "src/mixed"}
	if err := s.Mkdir(tree.dir); err != nil {
		return err
	}
	if err := s.plant(ctx, tree); err != nil {
		return err
	}
	at := func(format string, a ...any) string { return s.Abs("src/mixed/" + fmt.Sprintf(format, a...)) }
	const large = 10
	for i := range large { // data at some places, holes between
		f, err := os.Create(at("sparse%d", i))
		if err != nil {
			return err
		}
		err = f.Truncate(size.sparse / large)
		for part := range int64(5) {
			_, err2 := f.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, 256*kib), part*size.sparse/large/5)
			err = errors.Join(err, err2)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	for i := 0; i < size.small; i += 100 {
		folder := i / 1000
		other := (folder + 1) % tree.folders // in another shard
		if err := os.Link(at("folder%03d/file%06d", folder, i), at("folder%03d/link%06d", other, i)); err != nil {
			return err
		}
		r.links++
	}
	r.files, r.bytes = size.small+large, int64(size.small)*kib+size.sparse
	for _, name := range []string{"in/mixed", "in/mixed/gone", "in/mixed/folder000"} {
		if err := s.Mkdir(name); err != nil {
			return err
		}
	}
	for i := range 100 {
		name := fmt.Sprintf("in/mixed/gone/%d", i)
		if i%2 == 0 {
			name = fmt.Sprintf("in/mixed/folder000/gone%d", i)
		}
		if err := s.Write(name, "it goes"); err != nil {
			return err
		}
	}
	return s.own("src/mixed")
}

// changeMixed changes and removes some files, and gives one a folder's place.
func (s *star) changeMixed(size *fleetSize) error {
	for i := range size.small / 100 {
		name := fmt.Sprintf("src/mixed/folder%03d/file%06d", i*100/1000, i*100)
		var err error
		switch i % 3 {
		case 0:
			err = s.Write(name, "changed, and shorter")
		case 1:
			err = os.Remove(s.Abs(name))
		}
		if err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.Abs("src/mixed/folder001")); err != nil {
		return err
	}
	return errors.Join(s.Write("src/mixed/folder001", "a file now"), os.Truncate(s.Abs("src/mixed/sparse0"), size.sparse/20))
}

// own gives everything in a folder to the ordinary user.
func (s *star) own(name string) error {
	return filepath.WalkDir(s.Abs(name), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, hosts.OrdinaryUser, hosts.OrdinaryUser)
	})
}

// diskUse returns what a tree takes on its file system.
func diskUse(dir string) (int64, error) {
	out, err := exec.Command("du", "-s", "--block-size=1", dir).Output()
	if err != nil {
		return 0, err
	}
	text, _, _ := strings.Cut(string(out), "\t")
	return strconv.ParseInt(text, 10, 64)
}
