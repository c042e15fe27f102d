//go:build linux

package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/internal/identity/testca"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// cluster is three NATS servers that admit clients by TLS certificates and by users' JWTs.
type cluster struct {
	t     *testing.T
	nodes []*process
	queue *fleet.NATS
}

// natsServer builds the server of the module that fxfer has in itself.
func natsServer(t *testing.T) string {
	t.Helper()
	file, err := buildNATS()
	require.NoError(t, err)
	return file
}

var buildNATS = sync.OnceValues(func() (string, error) {
	file := filepath.Join(filepath.Dir(program), "nats-server") // removed with it
	return file, hosts.Build(file, "github.com/nats-io/nats-server/v2")
})

// newCluster starts the servers of a site.
func newCluster(s *site) *cluster {
	t := s.t
	dir := filepath.Join(s.dir, "nats")
	require.NoError(t, os.Mkdir(dir, 0o700))
	file := func(name string, text []byte) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		return filepath.Join(dir, name)
	}
	ca := testca.New(t, "ca")
	caFile := file("ca.pem", testca.PEM(ca.Cert))
	serverCert, serverKey := ca.Issue(t, testca.Server(), "ecdsa").Write(t, dir, "server")
	clientCert, clientKey := ca.Issue(t, testca.Client("member"), "ecdsa").Write(t, dir, "client")
	accounts, creds := newAccounts(t)
	c := &cluster{t: t, queue: &fleet.NATS{Credentials: file("fleet.creds", creds), CA: caFile, Cert: clientCert, Key: clientKey}}
	program := natsServer(t)
	var clients, routes []string
	for range 3 {
		clients, routes = append(clients, free(t)), append(routes, free(t))
	}
	for i := range 3 {
		way := newLine(t, clients[i])
		s.lines[fmt.Sprint("line to NATS server ", i)] = way
		config := fmt.Sprintf("server_name: n%d\nlisten: %q\nclient_advertise: %q\n", i, clients[i], way.address()) +
			fmt.Sprintf("jetstream { store_dir: %q, sync_interval: always }\n", filepath.Join(dir, fmt.Sprint("store", i))) +
			fmt.Sprintf("cluster { name: c, listen: %q, routes: [ \"nats://%s\" ] }\n", routes[i], strings.Join(routes, `", "nats://`)) +
			fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n", serverCert, serverKey, caFile) + accounts
		c.nodes = append(c.nodes, s.run(program, "nats", "-c", file(fmt.Sprintf("n%d.conf", i), []byte(config))))
		c.queue.URLs = append(c.queue.URLs, "tls://"+way.address())
	}
	s.queue = c.queue
	s.member = []string{"--nats-credentials", c.queue.Credentials, "--nats-ca", caFile, "--nats-cert", clientCert, "--nats-key", clientKey}
	for _, url := range c.queue.URLs {
		s.member = append(s.member, "--nats", url)
	}
	return c
}

// newAccounts makes an operator with an account for the fleet. It returns a part of a server's
// configuration, and what is in the .creds file of a user.
func newAccounts(t *testing.T) (config string, creds []byte) {
	t.Helper()
	pair := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		kp, err := make()
		require.NoError(t, err)
		public, err := kp.PublicKey()
		require.NoError(t, err)
		return kp, public
	}
	encode := func(token string, err error) string {
		require.NoError(t, err)
		return token
	}
	operator, operatorID := pair(nkeys.CreateOperator)
	_, systemID := pair(nkeys.CreateAccount)
	account, accountID := pair(nkeys.CreateAccount)
	user, userID := pair(nkeys.CreateUser)
	o := jwt.NewOperatorClaims(operatorID)
	o.SystemAccount = systemID
	a := jwt.NewAccountClaims(accountID)
	a.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1}
	seed, err := user.Seed()
	require.NoError(t, err)
	text, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(userID).Encode(account)), seed)
	require.NoError(t, err)
	return fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload { %s: %s, %s: %s }\n", encode(o.Encode(operator)),
		systemID, encode(jwt.NewAccountClaims(systemID).Encode(operator)), accountID, encode(a.Encode(operator))), text
}

// streams returns what the servers say about the fleet's streams, or nil while they can't.
func (c *cluster) streams() (all []*jetstream.StreamInfo) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := nats.Connect(strings.Join(c.queue.URLs, ","), nats.UserCredentials(c.queue.Credentials), nats.RootCAs(c.queue.CA),
		nats.ClientCert(c.queue.Cert, c.queue.Key))
	if err != nil {
		return nil
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(c.t, err)
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		all = append(all, info)
	}
	if list.Err() != nil {
		return nil
	}
	return all
}

// whole waits until each server has all of every stream.
func (c *cluster) whole() {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < longest; time.Sleep(200 * time.Millisecond) {
		all := c.streams()
		current := 0
		for _, info := range all {
			for _, p := range info.Cluster.Replicas {
				if p.Current && !p.Offline {
					current++
				}
			}
		}
		if len(all) > 0 && current == 2*len(all) {
			return
		}
	}
	require.Fail(c.t, "the cluster does not become whole")
}

// leader returns the number of the server that leads a stream.
func (c *cluster) leader(stream string) int {
	for _, info := range c.streams() {
		var number int
		if info.Config.Name == stream && info.Cluster.Leader != "" {
			_, err := fmt.Sscanf(info.Cluster.Leader, "n%d", &number)
			require.NoError(c.t, err)
			return number
		}
	}
	return 0
}

// TestCluster has the queue in three NATS servers. The one that leads is killed, and two at once; they come
// back. All jobs end, nothing is given up, and rsync sees no difference.
func TestCluster(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newServer(t)
	c := newCluster(s)
	lease := 20 * time.Second // a cluster elects a leader in less
	s.control("fxfer: jobs in ", append([]string{"--lease", lease.String()}, s.member...)...)
	for range 3 {
		s.work("member", "20mbit")
	}
	for _, info := range c.streams() {
		require.Equal(t, 3, info.Config.Replicas, info.Config.Name)
		require.False(t, info.Config.AllowDirect, info.Config.Name)
	}
	s.tree(rng, *files)
	out := filepath.Join(s.dir, "files", "out")
	for round, victims := range [][]func() int{
		{func() int { return c.leader("KV_fxfer-v1-records") }},
		{func() int { return c.leader("fxfer-v1-tasks") }, func() int { return c.leader("KV_fxfer-v1-jobs") }},
	} {
		c.whole()
		id := s.submit(s.source()+"/", "/out", fleet.Options{Delete: true, ShardFiles: 50, ShardBytes: 8 << 20})
		s.runs(id)
		c.kill(rng, victims)
		j, dead := s.wait(id)
		require.Equal(t, fleet.Done, j.State, j.Reason)
		require.Empty(t, dead)
		require.Equal(t, j.Shards, j.Done)
		agree(t, s.source(), out)
		s.change(rng, round)
	}
	for _, p := range append(s.workers, s.controller) {
		require.True(t, p.alive(), p.output())
	}
}

// kill kills servers at once, and starts them again after a while.
func (c *cluster) kill(rng *rand.Rand, victims []func() int) {
	killed := map[int]bool{}
	for _, choose := range victims {
		n := choose()
		for killed[n] {
			n = (n + 1) % len(c.nodes)
		}
		killed[n] = true
	}
	for n := range killed {
		c.nodes[n].kill()
	}
	time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
	for n := range killed {
		c.nodes[n].start()
	}
	c.t.Logf("killed %v", slices.Collect(maps.Keys(killed)))
}

// runs waits until workers send shards of a job. On a busy machine, they may have sent all by then.
func (s *site) runs(id string) {
	s.t.Helper()
	s.until(id, func(j *fleet.Job) bool { return j.Done > 0 })
}

// oneServer has the queue in one NATS server, which admits by an NKey. It returns what starts that server,
// and the file with the key.
func (s *site) oneServer() (start func(), key string) {
	member, err := nkeys.CreateUser()
	require.NoError(s.t, err)
	public, err := member.PublicKey()
	require.NoError(s.t, err)
	seed, err := member.Seed()
	require.NoError(s.t, err)
	key = filepath.Join(s.dir, "member.nk")
	require.NoError(s.t, os.WriteFile(key, seed, 0o600))
	address := free(s.t)
	config := filepath.Join(s.dir, "nats.conf")
	require.NoError(s.t, os.WriteFile(config, fmt.Appendf(nil,
		"listen: %q\njetstream { store_dir: %q }\nauthorization { users: [ { nkey: %s } ] }\n", address, filepath.Join(s.dir, "nats"), public), 0o600))
	s.queue = &fleet.NATS{URLs: []string{"nats://" + address}, Credentials: key}
	s.member = []string{"--nats", "nats://" + address, "--nats-credentials", key}
	return func() { s.run(natsServer(s.t), "nats", "-c", config) }, key
}

// TestOneServer has the queue in one NATS server, which keeps one copy of each stream. Members wait for
// it, and it refuses those that have another key.
func TestOneServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	start, key := s.oneServer()
	s.work("member", "none")
	s.workers[0].says("msg=waiting")
	start()
	s.control("fxfer: jobs in ", s.member...)
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "file"), []byte("mine"), 0o600))
	j, dead := s.wait(s.submit(s.source()+"/", "/out", fleet.Options{}))
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	require.FileExists(t, filepath.Join(s.dir, "files", "out", "file"))

	other, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := other.Seed()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, seed, 0o600))
	_, err = fleet.Connect(t.Context(), s.queue)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	s.work("member", "none")
	s.workers[1].says("fxfer: error: ")
	<-s.workers[1].done
}

// TestTwoControllers has two controllers of one queue. One dies while a job is sent, and does not come
// back; the other one brings it to its end, and another job, too.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	start, _ := s.oneServer()
	start()
	flags := append([]string{"--lease", short.String()}, s.member...)
	s.control("fxfer: jobs in ", flags...)
	first := s.controller
	s.control("fxfer: jobs in ", flags...)
	s.work("member", "20mbit")
	s.work("member", "20mbit")
	s.tree(random(t), 600)
	out := filepath.Join(s.dir, "files", "out")
	for range 2 {
		id := s.submit(s.source()+"/", "/out", fleet.Options{Delete: true, ShardFiles: 20})
		if first.alive() {
			s.runs(id)
			first.kill()
		}
		j, dead := s.wait(id)
		require.Equal(t, fleet.Done, j.State, j.Reason)
		require.Empty(t, dead)
		require.Equal(t, j.Shards, j.Done)
		agree(t, s.source(), out)
	}
	s.empty()
}
