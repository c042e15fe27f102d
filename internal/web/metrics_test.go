package web

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/identity/testca"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// kinds are the types of metrics in Prometheus' words.
var kinds = map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge", prometheus.UntypedValue: "histogram"}

// docs/metrics.md lists exactly the metrics that exist.
func TestMetricsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Metrics

` + "`fxfer serve --web 7434`" + ` serves these metrics at ` + "`/metrics`" + `, on this machine alone unless you give
an address. Counters begin with the process. Directions are as the server sees them: it receives
what a client sends. A test writes this page from the code
(` + "`go test ./internal/web -run TestMetricsPage -update`" + `).

| metric | type | labels | |
| --- | --- | --- | --- |
`)
	list := func(metrics []*metric) {
		for _, m := range metrics {
			labels := ""
			if len(m.labels) > 0 {
				labels = "`" + strings.Join(m.labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, kinds[m.kind], labels, m.help)
		}
	}
	list(all)
	quoted := func(names []string) string {
		for i := range names {
			names[i] = "`" + label(names[i]) + "`"
		}
		return strings.Join(names, " ")
	}
	fmt.Fprintf(&b, `
The page also has metrics of the process
(%s, …)
and of Go's runtime (%s, …).

## Labels

Each label has few values. Clients and files are not labels: see the [dashboard](operations.md).

| label | values |
| --- | --- |
| %s | the names of the shares |
| %s | %s |
| %s | %s |
| %s | %s |
| %s of fxfer_transfers_ended_total | %s |
| %s of fxfer_files_total | %s |
| %s | %s |
| %s | %s |
| %s | %s: nothing is what arrived twice |
| %s | %s |
| %s | %s; [diagnose.md](evidence/diagnose.md) shows how often they are right |
`, "`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`", "`go_goroutines`, `go_memstats_heap_alloc_bytes`",
		"`share`", "`direction`", "`receive` `send`", "`priority`", "`low` `normal` `high`", "`intent`", quoted(append([]string(nil), fxfer.Intents()...)),
		"`outcome`", quoted(append([]string(nil), fxfer.Outcomes()...)), "`outcome`", "`committed` `unchanged` `failed` `removed`",
		"`reason`", quoted(fxfer.RefusalReasons()), "`certificate`", quoted([]string{"server", "client_crl"}), "`cause`", "`own_queue` `others_queue` `line` `nothing`",
		"`state`", "`arriving` `waiting` `sending` `there` `dropped`", "`limiter`", quoted(fxfer.Limiters()))
	b.WriteString(`
## A fleet

` + "`fxfer fleet start --web 7436`" + ` serves these, and those of the process and of Go's runtime.

| metric | type | labels | |
| --- | --- | --- | --- |
`)
	list(allFleet)
	fmt.Fprintf(&b, `
| label | values |
| --- | --- |
| %s | %s; of fxfer_fleet_jobs_ended_total only those of jobs that have ended |
| %s | %s of shards; %s of workers |
| %s | %s |
| %s | %s |
`, "`state`", quoted(slices.Clone(fleetExample().States)), "`status`", "`waiting` `running` `retrying` `done` `dead`", "`busy` `idle`",
		"`kind`", quoted(slices.Clone(fleetExample().TaskKinds)), "`outcome`", "`done` `dead`")
	path := filepath.Join("..", "..", "docs", "metrics.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "go test ./internal/web -run TestMetricsPage -update")
}

// site is a server with pages, and a client that it admits.
type site struct {
	*fxfer.Server
	pages  *Pages
	base   string
	dir    string // of the share
	url    fxfer.URL
	home   string // of the client
	client *fxfer.Client
}

func start(t testing.TB, opt fxfer.Options) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	cert, key := testca.New(t, "CA").Issue(t, testca.Server(), "ecdsa").Write(t, t.TempDir(), "server")
	var err error
	s.Server, err = fxfer.NewServer(fxfer.ServerOptions{
		Home: t.TempDir(), Listen: "127.0.0.1:0", Shares: []fxfer.Share{{Name: "backup", Dir: s.dir, Rights: identity.Read | identity.Write}},
		MaxSessionsPerClient: 64, TLS: fxfer.ServerTLS{Cert: cert, Key: key},
	})
	require.NoError(t, err)
	s.pages, err = Listen("127.0.0.1:0", s.Server, Options{
		Version: "v1.2.3", Home: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Queues: func() []Queue {
			return []Queue{{Share: "scans", URL: "fxfer://centre/inbox", Error: "the line is away", Oldest: 1, Waiting: 7, Failed: 2}, {Share: "unread", Error: "damaged", Unread: true}, {Share: "well"}}
		},
		Jobs: func() ([]Job, error) {
			return []Job{{Name: "home", Condition: "idle", Good: 1, Ended: 1, Outcome: "good", Limiter: "line rate", Written: 5e9, Next: 4e12, Ends: 4e12 + 1, Alarm: "the newest good backup is older than max-age"}}, nil
		},
	})
	require.NoError(t, err)
	s.base = "http://" + s.pages.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- s.Serve(ctx) }()
	go func() { done <- s.pages.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
	text, err := s.Invite(fxfer.InviteOptions{Host: "127.0.0.1"})
	require.NoError(t, err)
	s.url, err = fxfer.ParseURL(text)
	require.NoError(t, err)
	s.home = t.TempDir()
	opt.Home = s.home
	s.client, err = fxfer.NewClient(opt)
	require.NoError(t, err)
	return s
}

// file creates a file to send.
func file(t testing.TB, size int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk.img")
	require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte("0123456789abcdef"), size/16), 0o644))
	return name
}

func get(t testing.TB, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

// The metrics follow Prometheus' conventions and report what happened.
func TestMetrics(t *testing.T) {
	s := start(t, fxfer.Options{})
	_, err := s.client.Send(t.Context(), []string{file(t, 1<<20)}, s.url, fxfer.Transfer{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(s.Past()) == 1 }, 5*time.Second, time.Millisecond)
	status, text := get(t, s.base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, line := range []string{
		`fxfer_build_info{version="v1.2.3"} 1`,
		`fxfer_ready 1`,
		`fxfer_payload_bytes_total{direction="receive",share="backup"} 1.048576e+06`,
		`fxfer_transfers_ended_total{direction="receive",outcome="done",share="backup"} 1`,
		`fxfer_files_total{direction="receive",outcome="committed",share="backup"} 1`,
		`fxfer_transfers{direction="send",share="backup"} 0`,
		`fxfer_transfers_by_priority{direction="send",priority="high",share="backup"} 0`,
		`fxfer_sessions_started_total{intent="receive"} 1`,
		`fxfer_refusals_total{reason="no_right"} 0`,
		`fxfer_forward_files{share="scans",state="waiting"} 7`,
		`fxfer_forward_files{share="scans",state="there"} 0`,
		`fxfer_forward_failing{share="scans"} 1`, `fxfer_forward_failing{share="unread"} 1`, `fxfer_forward_failing{share="well"} 0`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, `fxfer_forward_files{share="unread"`)
	for _, m := range all {
		switch m { // these exist only while sessions run
		case &rtt, &minRTT:
		default:
			require.Contains(t, text, "# HELP "+m.name+" "+m.help+"\n")
		}
	}
	require.Contains(t, text, "process_cpu_seconds_total")
	require.Contains(t, text, "go_goroutines")

	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing")
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Prometheus accepts the rules and alerts in deploy, and they fire when they should.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing")
	}
	dir := filepath.Join("..", "..", "deploy", "prometheus")
	out, err := exec.Command(promtool, "check", "rules", filepath.Join(dir, "rules.yml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(promtool, "test", "rules", filepath.Join(dir, "rules_test.yml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// ending is a server that is shutting down.
type ending struct{ Server }

func (ending) Status() *fxfer.Status { return &fxfer.Status{} }

func TestHealth(t *testing.T) {
	s := start(t, fxfer.Options{})
	for _, path := range []string{"/healthz", "/readyz"} {
		require.Eventually(t, func() bool { status, _ := get(t, s.base+path); return status == http.StatusOK }, 5*time.Second, time.Millisecond)
	}
	guard, err := newGuard("", []string{"example.com"})
	require.NoError(t, err)
	h := (&Pages{endpoint: &endpoint{guard: guard, log: slog.New(slog.DiscardHandler)}, server: ending{}}).handler()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	require.Equal(t, http.StatusOK, w.Code)
}

func TestParseAddr(t *testing.T) {
	for in, want := range map[string]string{"7434": "127.0.0.1:7434", ":7434": ":7434", "[::1]:80": "[::1]:80", "10.0.0.1:99": "10.0.0.1:99"} {
		have, err := ParseAddr(in)
		require.NoError(t, err)
		require.Equal(t, want, have)
	}
	for _, bad := range []string{"", "nonsense", "1.2.3.4", "::1", "127.0.0.1:70000"} {
		_, err := ParseAddr(bad)
		require.Error(t, err, bad)
	}
}

// TestPresentPriorities: each running transfer counts under its priority, in its share and direction.
func TestPresentPriorities(t *testing.T) {
	t.Parallel()
	low := fxfer.SessionStatus{Share: "a", Receive: true, Sharing: fxfer.Sharing{Priority: fxfer.PriorityLow}}
	counts := make(map[string]float64)
	present(&fxfer.Status{Transfers: []fxfer.SessionStatus{low, low, {Share: "a"}}}, func(m *metric, v float64, labels ...string) {
		if m == &prioritized {
			counts[strings.Join(labels, " ")] = v
		}
	})
	require.Equal(t, map[string]float64{
		"a receive low": 2, "a receive normal": 0, "a receive high": 0, "a send low": 0, "a send normal": 0, "a send high": 0,
	}, counts)
}
