package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// fleetExample is a fleet with two jobs under way and one that has failed.
func fleetExample() *Fleet {
	return &Fleet{
		Ready: true, Host: "head", Queue: "the queue is in tls://nats1", At: 100_000, Written: 5e9,
		Jobs: []FleetJob{
			{ID: "j3", State: "new", Source: "/data/three", URL: "fxfer://nas/files", Submitted: 90_000, Idle: 90},
			{
				ID: "j2", State: "sending", Source: "/data/<b>two", URL: "fxfer://nas/files", Submitted: 80_000, Files: 1000, Bytes: 7e9,
				Shards: 10, Done: 4, Dead: 1, Running: 2, Retrying: 1, Written: 4e9,
			},
			{ID: "j1", State: "failed", Over: true, Source: "/data/one", URL: "fxfer://nas/files", Ended: 70_000, Files: 5, Shards: 1, Dead: 1, Reason: "why it failed"},
		},
		Workers: []FleetWorker{{Name: "node1", Task: "j2.1-1.5", Since: 95_000, Written: 1e9}, {Name: "node2"}, {Name: "node3", Task: "j2.1-1.6", Since: 95_000}},
		Dead:    []FleetDead{{Task: "j2.1-1.3", Worker: "node1", Attempt: 10, At: 99_000, Reason: "permission denied"}},
		States:  []string{"new", "listing", "sending", "finishing", "paused", "done", "failed", "cancelled"}, TaskKinds: []string{"list", "shard", "finish"},
		TaskEnds: map[string]map[string]int64{"shard": {"done": 4, "dead": 1}, "list": {"done": 2}}, JobEnds: map[string]int64{"done": 0, "failed": 1}, Retried: 12,
	}
}

func TestFleetMetrics(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	startFleet(t, func(*Fleet) {}).handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
	var have []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "fxfer_fleet_") {
			have = append(have, strings.TrimSpace(line))
		}
	}
	require.ElementsMatch(t, []string{
		`fxfer_fleet_ready 1`,
		`fxfer_fleet_jobs{state="cancelled"} 0`,
		`fxfer_fleet_jobs{state="done"} 0`,
		`fxfer_fleet_jobs{state="failed"} 1`,
		`fxfer_fleet_jobs{state="finishing"} 0`,
		`fxfer_fleet_jobs{state="listing"} 0`,
		`fxfer_fleet_jobs{state="new"} 1`,
		`fxfer_fleet_jobs{state="paused"} 0`,
		`fxfer_fleet_jobs{state="sending"} 1`,
		`fxfer_fleet_jobs_ended_total{state="done"} 0`,
		`fxfer_fleet_jobs_ended_total{state="failed"} 1`,
		`fxfer_fleet_shards{status="dead"} 1`,
		`fxfer_fleet_shards{status="done"} 4`,
		`fxfer_fleet_shards{status="retrying"} 1`,
		`fxfer_fleet_shards{status="running"} 2`,
		`fxfer_fleet_shards{status="waiting"} 2`,
		`fxfer_fleet_files 1000`,
		`fxfer_fleet_bytes 7e+09`,
		`fxfer_fleet_written_bytes_total 5e+09`,
		`fxfer_fleet_tasks_ended_total{kind="finish",outcome="dead"} 0`,
		`fxfer_fleet_tasks_ended_total{kind="finish",outcome="done"} 0`,
		`fxfer_fleet_tasks_ended_total{kind="list",outcome="dead"} 0`,
		`fxfer_fleet_tasks_ended_total{kind="list",outcome="done"} 2`,
		`fxfer_fleet_tasks_ended_total{kind="shard",outcome="dead"} 1`,
		`fxfer_fleet_tasks_ended_total{kind="shard",outcome="done"} 4`,
		`fxfer_fleet_attempts_failed_total 12`,
		`fxfer_fleet_workers{status="busy"} 2`,
		`fxfer_fleet_workers{status="idle"} 1`,
		`fxfer_fleet_queue_age_seconds 90`,
	}, have)
}

// startFleet serves pages of a fleet whose state is that of the example, until change changes it.
func startFleet(t *testing.T, change func(*Fleet)) *FleetPages {
	p, err := ListenFleet("127.0.0.1:0", func() *Fleet { f := fleetExample(); change(f); return f }, Options{Home: t.TempDir(), Version: "v1", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return p
}

// Only who has the token sees jobs. Probes see whether the queue is there.
func TestFleetPages(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	p := startFleet(t, func(f *Fleet) { f.Ready = !away.Load() })
	h := p.handler()
	ask := func(path, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"/api/fleet", "/api/totals"} {
		require.Equal(t, http.StatusUnauthorized, ask(path, "").Code)
		require.Equal(t, http.StatusUnauthorized, ask(path, "guessed").Code)
		require.Equal(t, http.StatusOK, ask(path, p.guard.token).Code)
	}
	for _, path := range []string{"/", "/login", "/metrics", "/healthz", "/readyz", "/assets/fleet.js"} {
		w := ask(path, "")
		require.Equal(t, http.StatusOK, w.Code, path)
		require.NotContains(t, w.Body.String(), "/data/", path)
	}
	require.Equal(t, http.StatusNotFound, ask("/api/status", p.guard.token).Code)
	r := httptest.NewRequest(http.MethodGet, "http://evil.example/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusMisdirectedRequest, w.Code)
	require.NotContains(t, w.Body.String(), "--name", "a controller has no such flag")
	away.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, ask("/readyz", "").Code)
	require.Equal(t, http.StatusOK, ask("/healthz", "").Code)
}

func TestFleetRate(t *testing.T) {
	t.Parallel()
	at := func(ms, written int64) *Fleet { return &Fleet{At: ms, Written: written} }
	require.Zero(t, between(nil, at(1, 1)))
	require.Zero(t, between(at(5, 1), at(5, 9)))
	require.Zero(t, between(at(5, 10), at(6, 9)), "the monitor has begun anew")
	require.Equal(t, int64(8e6), between(at(1000, 0), at(3000, 2e6)))
	p := &FleetPages{ask: func() *Fleet { return at(0, 0) }}
	for i := range int64(2 * maxTotals) {
		p.note(at(i*2000, i*1e6))
	}
	require.Len(t, p.past(), maxTotals)
	require.Equal(t, int64(4e6), p.now().Rate)
}

// Somebody looks at a fleet whose queue goes away.
func TestFleetDashboard(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	var away atomic.Bool
	p := startFleet(t, func(f *Fleet) { f.Ready = !away.Load() })
	b.screen(1280, 900, false)
	b.dark(false)
	b.open(p.URL())
	b.until("serving", `document.querySelector("#state").textContent === "serving"`)
	text := func(selector string) string {
		return b.eval(`document.querySelector("` + selector + `").innerText`).(string)
	}
	for selector, parts := range map[string][]string{
		"header":       {"head", "the queue is in tls://nats1"},
		"#job-rows":    {"/data/<b>two → fxfer://nas/files", "4 of 10", "1 given up", "1 tried again", "no worker for 2 min", "why it failed", "failed"},
		"#worker-rows": {"node1", "j2.1-1.5", "1.00 GB", "node2"},
		"#dead-rows":   {"j2.1-1.3", "permission denied"},
		"#t-left":      {"5"},
		"#t-workers":   {"2 of 3 busy"},
	} {
		for _, part := range parts {
			require.Contains(t, text(selector), part, selector)
		}
	}
	b.axe("light")
	b.shoot("fleet")
	b.dark(true)
	b.axe("dark")
	b.screen(390, 844, true)
	b.until("no line is wider than a phone", `document.documentElement.scrollWidth <= 390`)
	b.shoot("phone-fleet")
	away.Store(true)
	b.until("it says so", `document.querySelector("#state").textContent === "the queue is away"`)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.faults)
}
