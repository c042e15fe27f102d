//go:build linux

// Package fleet_test runs fleets of real processes, and kills them.
package fleet_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	_ "github.com/fxfer/fxfer/internal/cli" // a change of the program makes cached results invalid
	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of what is random, 0 for a new one")
	kills = flag.Int("kills", 8, "how many processes TestKills kills")
	files = flag.Int("files", 1500, "files of these")
)

// longest is how long a job may take: the machine may be busy.
const longest = 4 * time.Minute

// short is a lease that suits workers that are killed: nothing of them goes on.
const short = 3 * time.Second

var program string

// waiting is how many tests may run at the same time: they wait for leases and elections most of the time.
const waiting = "6"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", waiting)
	flag.Parse()
	os.Exit(func() int {
		code, ran, err := hosts.Apart()
		if ran {
			return code
		}
		var dir string
		if err == nil {
			dir, err = os.MkdirTemp("", "fxfer-fleet-")
		}
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			program = filepath.Join(dir, "fxfer")
			err = hosts.Build(program, "../../cmd/fxfer")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// process is a program that runs until it is killed, and can be started again.
type process struct {
	t       *testing.T
	program string
	home    string
	args    []string
	cmd     *exec.Cmd
	done    chan struct{}

	mu   sync.Mutex
	said bytes.Buffer
}

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// forget drops what the process has said.
func (p *process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said.Reset()
}

func (p *process) start() {
	p.cmd = exec.Command(p.program, p.args...)
	p.cmd.Env = append(os.Environ(), "FXFER_HOME="+p.home)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(p.t, p.cmd.Start())
	cmd, done := p.cmd, make(chan struct{})
	p.done = done
	go func() { defer close(done); _ = cmd.Wait() }()
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// alive reports whether the process runs.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// says waits until the process has printed one of some texts, and returns the rest of that line.
func (p *process) says(texts ...string) string {
	p.t.Helper()
	for began := time.Now(); time.Since(began) < longest; time.Sleep(20 * time.Millisecond) {
		for _, text := range texts {
			if _, rest, ok := strings.Cut(p.output(), text); ok && strings.Contains(rest, "\n") {
				line, _, _ := strings.Cut(rest, "\n")
				return line
			}
		}
	}
	require.Fail(p.t, "no "+strings.Join(texts, ", and no "), p.output())
	return ""
}

// site is a server, a controller and workers.
type site struct {
	t          *testing.T
	dir        string
	server     *process
	controller *process
	workers    []*process
	url        string // of the server's share
	token      string // URL with an invitation and the server's key
	lines      map[string]*line
	full       string // a folder of a worker on a disk that can be filled
	queue      fleet.Queue
	member     []string // flags by which members find it
	// Of a queue in the controller:
	address string
	keys    *fleet.Credentials
}

// free returns an address that nobody listens on. No connection gets its port while a process that had it is
// dead, and no other test of this process: the kernel gives out ports from 32768 on.
func free(t *testing.T) string {
	for {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.N(20_000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, l.Close())
		if _, had := taken.LoadOrStore(l.Addr().String(), true); !had {
			return l.Addr().String()
		}
	}
}

// taken are the addresses that tests have.
var taken sync.Map

// run runs a program until the test ends.
func (s *site) run(program, home string, args ...string) *process {
	p := &process{t: s.t, program: program, home: filepath.Join(s.dir, home), args: args}
	p.start()
	s.t.Cleanup(func() {
		p.kill()
		if s.t.Failed() {
			s.t.Logf("%v said:\n%s", args, p.output())
		}
	})
	return p
}

// newSite starts a site. start are more arguments of the controller.
func newSite(t *testing.T, workers int, rate string, lease time.Duration, start ...string) *site {
	s := newServer(t)
	s.address = free(t)
	s.control("fxfer: listening on ", append([]string{"--listen", s.address, "--lease", lease.String()}, start...)...)
	credentials := fleet.CredentialsFile(filepath.Join(s.dir, "controller", "fleet"))
	var err error
	s.keys, err = fleet.LoadCredentials(credentials)
	require.NoError(t, err)
	s.queue = &fleet.Controlled{Address: s.address, Credentials: s.keys}
	s.member = []string{"--controller", s.address, "--credentials", credentials}
	for range workers {
		s.work("member", rate)
	}
	for _, w := range s.workers { // or the others are done before one has begun
		w.says("msg=working ")
	}
	return s
}

// newServer starts the server of a site, which knows the key of the workers.
func newServer(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir(), lines: make(map[string]*line)}
	source, target, listen := s.source(), filepath.Join(s.dir, "files"), free(t)
	require.NoError(t, os.MkdirAll(source, 0o755))
	require.NoError(t, os.MkdirAll(target, 0o755))
	config := filepath.Join(s.dir, "server.yaml") // trees have setuid programs
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf("shares: {files: {dir: %q, privileged: true}}\n", target)), 0o600))
	s.server = s.run(program, "server", "serve", "--listen", listen, "--config", config, "--invite")
	s.url = "fxfer://" + listen + "/files"
	s.token = "fxfer://" + s.server.says("fxfer://")
	s.enroll(s.token)
	s.server.args = s.server.args[:len(s.server.args)-1] // it invites once
	return s
}

// enroll has the workers' key known at a server, and the server's to the workers.
func (s *site) enroll(url string) {
	ls := exec.Command(program, "ls", url)
	ls.Env = append(os.Environ(), "FXFER_HOME="+filepath.Join(s.dir, "member"))
	out, err := ls.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

// control starts the controller. It has said ready once members can connect.
func (s *site) control(ready string, args ...string) {
	s.controller = s.run(program, "controller", append([]string{"fleet", "start"}, args...)...)
	s.controller.says(ready)
}

// work adds a worker.
func (s *site) work(home, rate string) {
	s.workers = append(s.workers, s.run(program, home, append([]string{"fleet", "worker",
		"--read", s.source(), "--name", fmt.Sprint("w", len(s.workers)), "--rate-limit", rate}, s.member...)...))
}

func (s *site) source() string { return filepath.Join(s.dir, "source") }

// submit submits a job.
func (s *site) submit(source, below string, opt fleet.Options) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), longest)
	defer cancel()
	m, err := fleet.Connect(ctx, s.queue)
	require.NoError(s.t, err)
	defer m.Close()
	id, err := m.Submit(ctx, source, s.url+below, opt)
	require.NoError(s.t, err)
	return id
}

// look returns a job, or nil while the controller is away.
func (s *site) look(id string) (found *fleet.Job, dead []*fleet.DeadTask) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	m, err := fleet.Connect(ctx, s.queue)
	if err != nil {
		return nil, nil
	}
	defer m.Close()
	jobs, err := m.Jobs(ctx)
	if err != nil {
		return nil, nil
	}
	for _, j := range jobs {
		if j.ID == id {
			found = j
		}
	}
	dead, _ = m.Dead(ctx, id)
	return found, dead
}

// wait waits for the end of a job.
func (s *site) wait(id string) (*fleet.Job, []*fleet.DeadTask) {
	s.t.Helper()
	for began := time.Now(); time.Since(began) < longest; time.Sleep(100 * time.Millisecond) {
		if j, dead := s.look(id); j != nil && j.State.Ended() {
			return j, dead
		}
	}
	require.Fail(s.t, "the job does not end")
	return nil, nil
}

// tree makes a tree with files of several names, sparse ones, links, and folders that nobody may write
// to.
func (s *site) tree(rng *rand.Rand, n int) {
	at := func(format string, a ...any) string { return filepath.Join(s.source(), fmt.Sprintf(format, a...)) }
	for i := range 20 {
		require.NoError(s.t, os.MkdirAll(at("d%d/e", i), 0o750))
	}
	content := make([]byte, 20_000)
	for i := range n {
		for j := range content {
			content[j] = byte(rng.Uint32())
		}
		name := at("d%d/f%d", i%20, i)
		require.NoError(s.t, os.WriteFile(name, content[:rng.IntN(len(content))], 0o640))
		switch i % 50 {
		case 0:
			require.NoError(s.t, os.Link(name, at("d%d/e/l%d", rng.IntN(20), i)))
		case 1:
			require.NoError(s.t, os.Symlink("../x", at("d%d/s%d", i%20, i)))
		case 2:
			require.NoError(s.t, os.Truncate(name, 3<<20+rng.Int64N(1<<20)))
		}
	}
	for i := range 20 {
		require.NoError(s.t, os.Chmod(at("d%d", i), []os.FileMode{0o755, 0o555, 0o700}[i%3]))
	}
	s.t.Cleanup(func() {
		for i := range 20 {
			_ = os.Chmod(at("d%d", i), 0o700)
			_ = os.Chmod(filepath.Join(s.dir, "files", "out", fmt.Sprint("d", i)), 0o700)
		}
	})
}

// agree checks that rsync sees no difference.
func agree(t *testing.T, a, b string) {
	t.Helper()
	if _, err := exec.LookPath("rsync"); err != nil {
		t.Skip("no rsync to ask")
	}
	out, err := exec.Command("rsync", "-aHAXS", "--dry-run", "--delete", "--checksum", "--itemize-changes", a+"/", b+"/").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

// change changes the tree between two jobs: content, times and kinds of entries.
func (s *site) change(rng *rand.Rand, round int) {
	for i := range *files {
		if i%20 != 0 && rng.IntN(2) == 0 {
			name := filepath.Join(s.source(), fmt.Sprintf("d%d/f%d", i%20, i))
			require.NoError(s.t, os.WriteFile(name, fmt.Appendf(nil, "%d %x", round, rng.Uint64()), 0o640))
		}
	}
	was, is := filepath.Join(s.source(), "d0"), []byte("a file now")
	require.NoError(s.t, os.RemoveAll(was))
	if round%2 == 0 {
		require.NoError(s.t, os.Mkdir(was, 0o700))
		was = filepath.Join(was, "in it")
	}
	require.NoError(s.t, os.WriteFile(was, is, 0o600))
}

// TestFullDisk has a worker whose own folder is on a full disk. Whatever it does with its tasks, jobs end.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	s := newSite(t, 1, "20mbit", short)
	home := s.smallDisk("128k")
	s.fill()
	s.work(home, "20mbit")
	s.workers[1].says("msg=working ")
	s.tree(random(t), 600)
	for range 2 {
		j, dead := s.wait(s.submit(s.source()+"/", "/out", fleet.Options{ShardFiles: 20}))
		require.Equal(t, fleet.Done, j.State, j.Reason)
		require.Empty(t, dead)
		agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
	}
	require.Contains(t, s.workers[1].output(), "msg=task ", "it took no task")
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// js connects as a member that does what it likes.
func (s *site) js() jetstream.JetStream {
	var conn *nats.Conn
	var err error
	switch q := s.queue.(type) {
	case *fleet.Controlled:
		pool := x509.NewCertPool()
		require.True(s.t, pool.AppendCertsFromPEM([]byte(q.Credentials.Certificate)))
		pair, errKey := nkeys.FromSeed([]byte(q.Credentials.Seed))
		require.NoError(s.t, errKey)
		public, errKey := pair.PublicKey()
		require.NoError(s.t, errKey)
		conn, err = nats.Connect("tls://"+q.Address, nats.Nkey(public, pair.Sign),
			nats.Secure(&tls.Config{RootCAs: pool, ServerName: "fxfer-fleet", MinVersion: tls.VersionTLS13}))
	case *fleet.NATS:
		opts := []nats.Option{nats.UserCredentials(q.Credentials), nats.RootCAs(q.CA), nats.ClientCert(q.Cert, q.Key)}
		if q.CA == "" {
			key, errKey := nats.NkeyOptionFromSeed(q.Credentials)
			require.NoError(s.t, errKey)
			opts = []nats.Option{key}
		}
		conn, err = nats.Connect(strings.Join(q.URLs, ","), opts...)
	}
	require.NoError(s.t, err)
	s.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(s.t, err)
	return js
}

// TestLostTask removes the message of a task that waits for its next attempt, as a store that lost its
// last writes would. The controller notices that nobody has it, and the job ends.
func TestLostTask(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "none", short)
	js := s.js()
	tasks, err := js.Stream(t.Context(), "fxfer-v1-tasks")
	require.NoError(t, err)
	records, err := js.KeyValue(t.Context(), "fxfer-v1-records")
	require.NoError(t, err)
	watch, err := records.WatchAll(t.Context())
	require.NoError(t, err)
	defer watch.Stop() //nolint:errcheck // the connection ends with it
	source := filepath.Join(s.source(), "later")
	id := s.submit(source, "/out", fleet.Options{})
	for entry := range watch.Updates() { // there is no source yet: the list waits
		if entry == nil || entry.Key() != id+".list" {
			continue
		}
		var r fleet.Record
		require.NoError(t, json.Unmarshal(entry.Value(), &r))
		if r.Outcome == fleet.Waiting {
			require.NoError(t, tasks.DeleteMsg(t.Context(), r.Message))
			break
		}
	}
	require.NoError(t, os.Mkdir(source, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(source, "file"), []byte("mine"), 0o600))
	j, dead := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	require.FileExists(t, filepath.Join(s.dir, "files", "out", "later", "file"))
}

// TestLostBeforeBegun removes the message of a task before a worker has begun it.
func TestLostBeforeBegun(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0, "none", short)
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "file"), []byte("mine"), 0o600))
	tasks, err := s.js().Stream(t.Context(), "fxfer-v1-tasks")
	require.NoError(t, err)
	id := s.submit(s.source()+"/", "/out", fleet.Options{})
	s.controller.says("msg=job id=" + id + " state=listing")
	require.NoError(t, tasks.Purge(t.Context()))
	s.work("member", "none")
	j, dead := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	require.FileExists(t, filepath.Join(s.dir, "files", "out", "file"))
}

// TestHostile has a member that publishes what it likes: messages that make no sense, records of others,
// and lists that lead out of a source. The fleet does its work, and what is beside a source stays there.
func TestHostile(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "none", short)
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "file"), []byte("mine"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "secret"), []byte("secret"), 0o600))
	out := filepath.Join(s.dir, "files", "out")

	js := s.js()
	publish := func(subject, text string) {
		_, err := js.Publish(t.Context(), "fxfer.v1.task."+subject, []byte(text))
		require.NoError(t, err)
	}
	publish("x.list", "")
	publish("x.list", `{"version":1,"job":"x","kind":"list"}`)
	publish("x.other", `{"version":1,"job":"x","kind":"other"}`)
	publish("x.y.1", `{"version":1,"job":"x","kind":"shard","list":"z","number":1}`)
	publish("x.y.-1", `{"version":1,"job":"x","kind":"shard","list":"y","number":-1}`)
	publish("\u00fc.list", `{"version":1,"job":"\u00fc","kind":"list"}`)
	publish("a.b.c.d.e", strings.Repeat("[", 100_000))
	jobs, err := js.KeyValue(t.Context(), "fxfer-v1-jobs")
	require.NoError(t, err)
	lists, err := js.ObjectStore(t.Context(), "fxfer-v1-lists")
	require.NoError(t, err)
	records, err := js.KeyValue(t.Context(), "fxfer-v1-records")
	require.NoError(t, err)
	put := func(kv jetstream.KeyValue, key, text string) {
		_, err := kv.Put(t.Context(), key, []byte(text))
		require.NoError(t, err)
	}
	put(jobs, "x.list", `{"version":1,"id":"x.list","state":"done"}`)
	put(jobs, "y", `{"version":1,"id":"x","state":"new"}`)
	put(jobs, "z", `{`)
	put(records, "a.b.c.d", `{}`)
	put(records, "y.list", `{"version":1,"outcome":"done","shards":-1,"list":"*"}`)
	for i, list := range []string{".\x00", "secret\x00", "source/../secret\x00", "../secret\x00", strings.Repeat("x", 70<<20)} {
		id := fmt.Sprint("h", i)
		put(jobs, id, fmt.Sprintf(`{"version":1,"id":%q,"source":%q,"url":"%s/out","state":"sending","list":"1-1","shards":1}`, id, s.source(), s.url))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // without, it is 5 s
		_, err := lists.PutBytes(ctx, id+".1-1.0", []byte(list))
		cancel()
		require.NoError(t, err)
		publish(id+".1-1.0", fmt.Sprintf(`{"version":1,"job":%q,"kind":"shard","list":"1-1","number":0}`, id))
	}
	for i := range 5 { // the shard is dead, and the last task sends the source
		j, dead := s.wait(fmt.Sprint("h", i))
		require.Equal(t, fleet.Done, j.State, j.Reason)
		require.Len(t, dead, 1)
		require.Contains(t, dead[0].Reason, "the list of a shard")
	}
	id := s.submit(s.source()+"/", "/out/good", fleet.Options{})
	for _, key := range []string{".list", ".finish", ".1-1.0"} {
		put(records, id+key, "{")
	}
	j, dead := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	require.FileExists(t, filepath.Join(out, "good", "file"))
	require.FileExists(t, filepath.Join(out, "source", "file"))
	require.NoFileExists(t, filepath.Join(out, "secret"))
	for _, p := range []*process{s.controller, s.workers[0]} {
		require.True(t, p.alive(), p.output())
	}
}

// TestFrozen stops a worker for longer than its lease, while it sends a shard. Another worker sends the
// shard, the job ends, and when the first one wakes up it changes nothing any more.
func TestFrozen(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newSite(t, 2, "16mbit", fleet.DefaultLease)
	s.tree(rng, 600)
	out := filepath.Join(s.dir, "files", "out")
	id := s.submit(s.source()+"/", "/out", fleet.Options{ShardFiles: 100})
	frozen := s.workers[0]
	frozen.says("msg=task key=" + id + ".1-1.") // a shard
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGSTOP))
	j, dead := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	agree(t, s.source(), out)
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGCONT))
	frozen.says("msg=lost", `msg="not wanted any more"`) // the lease is over, and so is the job: it asks for both
	agree(t, s.source(), out)
	j, _ = s.wait(s.submit(s.source()+"/", "/out", fleet.Options{ShardFiles: 100}))
	require.Equal(t, fleet.Done, j.State, j.Reason)
	agree(t, s.source(), out)
}

// TestPoison has a shard that can't be sent, and a job that no worker may do. They end with reasons, and
// everything else of the tree is sent.
func TestPoison(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "none", short)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.source(), name), []byte(name), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "files", "out", "b", "folder"), 0o755)) // in the way
	sent := s.submit(s.source()+"/", "/out", fleet.Options{ShardFiles: 1})
	foreign := s.submit(s.dir, "/out", fleet.Options{})
	outside := filepath.Join(s.source(), "outside")
	require.NoError(t, os.Symlink("/etc", outside))
	through := s.submit(outside+"/", "/out", fleet.Options{})

	j, dead := s.wait(sent)
	require.Equal(t, fleet.Failed, j.State)
	require.Equal(t, 3, j.Shards)
	require.Equal(t, 1, j.Dead)
	require.Len(t, dead, 2) // and the last task, which fails as one command would
	for _, d := range dead {
		require.Contains(t, d.Reason, "b: ")
	}
	for _, name := range []string{"a", "c"} {
		require.FileExists(t, filepath.Join(s.dir, "files", "out", name))
	}
	for _, id := range []string{foreign, through} {
		j, dead = s.wait(id)
		require.Equal(t, fleet.Failed, j.State)
		require.Contains(t, j.Reason, "may not read")
		require.Len(t, dead, 1)
	}
	require.NoFileExists(t, filepath.Join(s.dir, "files", "out", "passwd"))
}

// TestStrangers connects without the credentials of the fleet, and members to another controller.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s, other := newSite(t, 0, "none", short), newSite(t, 0, "none", short)
	for name, opts := range map[string][]nats.Option{
		"plain":     nil,
		"with TLS":  {nats.Secure()},
		"user":      {nats.UserInfo("fxfer", "fxfer")},
		"TLS first": {nats.TLSHandshakeFirst()},
		"no key":    {nats.Secure(&tls.Config{InsecureSkipVerify: true})}, //nolint:gosec // a stranger
	} {
		c, err := nats.Connect("nats://"+s.address, append(opts, nats.Timeout(20*time.Second), nats.MaxReconnects(0))...)
		if err == nil {
			c.Close()
		}
		require.Error(t, err, name)
	}
	for name, keys := range map[string]*fleet.Credentials{
		"of another fleet":       other.keys,
		"another certificate":    {Version: 1, Certificate: other.keys.Certificate, Seed: s.keys.Seed},
		"the key of another one": {Version: 1, Certificate: s.keys.Certificate, Seed: other.keys.Seed},
	} {
		_, err := fleet.Connect(t.Context(), &fleet.Controlled{Address: s.address, Credentials: keys})
		require.Error(t, err, name)
	}
	m, err := fleet.Connect(t.Context(), s.queue)
	require.NoError(t, err)
	m.Close()
}

// TestInterrupted: Ctrl-C ends a worker though its queue does not answer: one that connects for the first
// time, and one that had a connection.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0, "none", short)
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "file"), []byte("mine"), 0o600))
	for i, worked := range []bool{false, true} {
		x := newLine(t, s.address)
		s.member[1] = x.address()
		if !worked {
			x.hold()
		}
		s.work("member", "none")
		w := s.workers[i]
		before := 0
		if worked {
			s.wait(s.submit(s.source()+"/", "/out", fleet.Options{}))
			before = x.connected()
			x.silence()
		}
		require.Eventually(t, func() bool { return x.connected() > before }, longest, time.Millisecond)
		began := time.Now()
		require.NoError(t, w.cmd.Process.Signal(syscall.SIGINT))
		<-w.done
		t.Logf("it ended after %v", time.Since(began))
		require.Less(t, time.Since(began), 5*time.Second, "an attempt to connect takes 10 s")
		require.Zero(t, w.cmd.ProcessState.ExitCode(), w.output())
	}
}

// TestListen: without a host in its address, the controller listens on IPv4 and IPv6.
func TestListen(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	s.control("fxfer: credentials", "--listen", ":0")
	_, port, err := net.SplitHostPort(s.controller.says("fxfer: listening on "))
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Logf("this host has no %s: %v", host, err)
			continue
		}
		require.NoError(t, l.Close())
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}
