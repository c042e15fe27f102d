package web

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// metric is one metric family. docs/metrics.md is generated from these.
type metric struct {
	name   string
	kind   prometheus.ValueType // UntypedValue for a histogram
	help   string
	labels []string
}

// flowLabels are the labels of everything that is counted per share and direction. The
// configuration bounds the number of shares.
var flowLabels = []string{"share", "direction"}

// with adds a label to flowLabels.
func with(label string) []string { return []string{"share", "direction", label} }

// The metrics. Counters start at 0 with the process.
var (
	buildInfo   = metric{"fxfer_build_info", prometheus.GaugeValue, "1, with the version as a label.", []string{"version"}}
	ready       = metric{"fxfer_ready", prometheus.GaugeValue, "1 while the server admits clients, 0 while it ends.", nil}
	sessions    = metric{"fxfer_sessions", prometheus.GaugeValue, "Running sessions of any intent.", nil}
	sessionsMax = metric{"fxfer_sessions_limit", prometheus.GaugeValue, "Most sessions at a time; further clients are asked to retry.", nil}
	pending     = metric{"fxfer_strangers", prometheus.GaugeValue, "Connections that are not admitted yet.", nil}
	pendingMax  = metric{"fxfer_strangers_limit", prometheus.GaugeValue, "Most connections that are not admitted yet at a time; further ones are closed.", nil}
	begun       = metric{"fxfer_sessions_started_total", prometheus.CounterValue, "Admitted sessions, by intent.", []string{"intent"}}
	refusals    = metric{"fxfer_refusals_total", prometheus.CounterValue, "Refused connections and sessions, by reason.", []string{"reason"}}
	expiry      = metric{"fxfer_certificate_expiry_timestamp_seconds", prometheus.GaugeValue,
		"When the server's certificate expires, and when the first revocation list does; absent where there is none.", []string{"certificate"}}
	freeBytes = metric{"fxfer_share_free_bytes", prometheus.GaugeValue, "Free space on the file system of a share, at most 10 s old.", []string{"share"}}

	transfers   = metric{"fxfer_transfers", prometheus.GaugeValue, "Sessions that send or receive files.", flowLabels}
	prioritized = metric{"fxfer_transfers_by_priority", prometheus.GaugeValue, "The same, by the priority that they have now, as far as it is known.", with("priority")}
	streams     = metric{"fxfer_streams", prometheus.GaugeValue, "Data streams of sessions that send or receive files.", flowLabels}
	underWay    = metric{"fxfer_files_under_way", prometheus.GaugeValue, "Files of running transfers that are neither done nor failed, as far as they have been found.", flowLabels}
	goodput     = metric{"fxfer_goodput_bytes_per_second", prometheus.GaugeValue, "Payload that arrived at the receiver over the last seconds, incomplete blocks included.", flowLabels}
	rtt         = metric{"fxfer_rtt_seconds", prometheus.GaugeValue, "Smoothed round-trip time, mean of the transfers.", flowLabels}
	minRTT      = metric{"fxfer_rtt_min_seconds", prometheus.GaugeValue, "Least round-trip time of any running transfer.", flowLabels}
	bdp         = metric{"fxfer_bdp_bytes", prometheus.GaugeValue, "Bandwidth-delay product: peak goodput times least round-trip time, sum of the transfers.", flowLabels}
	inFlight    = metric{"fxfer_in_flight_bytes", prometheus.GaugeValue, "Data in flight, sum of the transfers.", flowLabels}
	window      = metric{"fxfer_window_bytes", prometheus.GaugeValue, "Data that may be in flight: the smaller of congestion and receiver windows, sum of the transfers.", flowLabels}
	checkpoint  = metric{"fxfer_checkpoint_age_seconds", prometheus.GaugeValue,
		"How long written data has waited to become durable, the longest of the transfers; 0 if nothing waits.", []string{"share"}}

	queueFiles = metric{"fxfer_forward_files", prometheus.GaugeValue, "Files in the queue of a share that is sent on, by state.", []string{"share", "state"}}
	queueAge   = metric{"fxfer_forward_oldest_age_seconds", prometheus.GaugeValue,
		"Age of the oldest file of a share that is sent on and not there yet; 0 if there is none.", []string{"share"}}
	queueFails = metric{"fxfer_forward_failing", prometheus.GaugeValue,
		"Whether something keeps a share's files from being sent on, such as the line: 1 or 0. Files that fail alone do not count.", []string{"share"}}

	ended       = metric{"fxfer_transfers_ended_total", prometheus.CounterValue, "Sessions that sent or received and ended, by outcome.", with("outcome")}
	lastSuccess = metric{"fxfer_last_success_timestamp_seconds", prometheus.GaugeValue, "When a transfer last succeeded; absent before the first.", flowLabels}
	payload     = metric{"fxfer_payload_bytes_total", prometheus.CounterValue, "Payload written at the receiver.", flowLabels}
	resumed     = metric{"fxfer_resumed_bytes_total", prometheus.CounterValue, "Payload that an interrupted transfer had already written.", flowLabels}
	resent      = metric{"fxfer_resent_bytes_total", prometheus.CounterValue, "Payload that the server sent more than once.", flowLabels}
	files       = metric{"fxfer_files_total", prometheus.CounterValue, "Entries, by outcome.", with("outcome")}
	limiters    = metric{"fxfer_limiter_seconds_total", prometheus.CounterValue, "Time that a limiter held transfers back, by limiter.", with("limiter")}
	stages      = metric{"fxfer_stage_seconds_total", prometheus.CounterValue,
		"Time that the server's goroutines spent in each stage of a transfer; streams work at the same time.", with("stage")}
	blocks = metric{"fxfer_block_duration_seconds", prometheus.UntypedValue,
		"Time of a block. Sending: from its claim to the acknowledgement. Receiving: from its header to the written data.", flowLabels}
	busy     = metric{"fxfer_stream_busy_seconds_total", prometheus.CounterValue, "Time of streams with data in flight.", flowLabels}
	rwnd     = metric{"fxfer_stream_receiver_window_limited_seconds_total", prometheus.CounterValue, "Time of streams in which the receiver's window held data back.", flowLabels}
	sndbuf   = metric{"fxfer_stream_send_buffer_limited_seconds_total", prometheus.CounterValue, "Time of streams in which the send buffer held data back.", flowLabels}
	segments = metric{"fxfer_segments_sent_total", prometheus.CounterValue, "TCP segments with data that the sending side sent.", flowLabels}
	retrans  = metric{"fxfer_segments_retransmitted_total", prometheus.CounterValue, "TCP segments with data that were sent again.", flowLabels}
	queue    = metric{"fxfer_added_delay_seconds", prometheus.GaugeValue, "Median delay that a transfer adds in the queue before the bottleneck, the largest of the transfers.", flowLabels}
	shared   = metric{"fxfer_shared_seconds_total", prometheus.CounterValue, "Time in which transfers shared the line with other traffic.", flowLabels}
	yielded  = metric{"fxfer_yielded_seconds_total", prometheus.CounterValue, "Time in which transfers took what other traffic left.", flowLabels}
	lost     = metric{"fxfer_segments_lost_total", prometheus.CounterValue, "Segments that were sent again, by what they were lost to.", with("cause")}
)

// all lists fxfer's own metrics in the order of the page.
var all = []*metric{
	&buildInfo, &ready, &sessions, &sessionsMax, &pending, &pendingMax, &begun, &refusals, &expiry, &freeBytes,
	&transfers, &prioritized, &streams, &underWay, &goodput, &rtt, &minRTT, &bdp, &inFlight, &window, &checkpoint, &queueFiles, &queueAge, &queueFails,
	&ended, &lastSuccess, &payload, &resumed, &resent, &files, &limiters, &stages, &blocks, &busy, &rwnd, &sndbuf, &segments, &retrans,
	&queue, &shared, &yielded, &lost,
}

func (m *metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.name, m.help, m.labels, nil) }

// collector computes metrics on each scrape.
type collector struct {
	descs  map[*metric]*prometheus.Desc
	report func(*scrape)
}

// newRegistry returns a registry for metrics that report reports, and those of the process and the Go
// runtime.
func newRegistry(metrics []*metric, report func(*scrape)) *prometheus.Registry {
	c := &collector{make(map[*metric]*prometheus.Desc), report}
	for _, m := range metrics {
		c.descs[m] = m.desc()
	}
	r := prometheus.NewRegistry()
	r.MustRegister(c, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return r
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) { c.report(&scrape{c.descs, out}) }

// scrape takes the metrics of one scrape.
type scrape struct {
	descs map[*metric]*prometheus.Desc
	out   chan<- prometheus.Metric
}

func (s *scrape) put(m *metric, v float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(s.descs[m], m.kind, v, labels...)
}

// report reports the status of the server.
func (p *Pages) report(x *scrape) {
	put := x.put
	st := p.server.Status()
	put(&buildInfo, 1, p.opt.Version)
	put(&ready, number(st.Ready))
	put(&sessions, float64(st.Sessions))
	put(&sessionsMax, float64(st.MaxSessions))
	put(&pending, float64(st.Unauthenticated))
	put(&pendingMax, float64(st.MaxUnauthenticated))
	for _, intent := range fxfer.Intents() {
		put(&begun, float64(st.Counters.Begun[intent]), intent)
	}
	for _, reason := range fxfer.RefusalReasons() {
		put(&refusals, float64(st.Counters.Refused[reason]), label(reason))
	}
	for _, c := range st.Certificates {
		put(&expiry, float64(c.Until.Unix()), c.What)
	}
	for _, s := range st.Shares {
		if s.Free >= 0 {
			put(&freeBytes, float64(s.Free), s.Name)
		}
	}
	present(st, put)
	for _, q := range p.queues() {
		put(&queueFails, number(q.Error != ""), q.Share)
		if q.Unread {
			continue
		}
		for state, n := range map[string]int{
			"arriving": q.Arriving, "waiting": q.Waiting, "sending": q.Sending, "there": q.There, "dropped": q.Dropped,
		} {
			put(&queueFiles, float64(n), q.Share, state)
		}
		age := 0.0
		if q.Oldest != 0 {
			age = max(0, time.Since(time.UnixMilli(q.Oldest)).Seconds())
		}
		put(&queueAge, age, q.Share)
	}
	for i := range st.Counters.Traffic {
		traffic(&st.Counters.Traffic[i], x)
	}
}

// priorities are the values of a label.
var priorities = []fxfer.Priority{fxfer.PriorityLow, fxfer.PriorityNormal, fxfer.PriorityHigh}

// present reports the running transfers.
func present(st *fxfer.Status, put func(m *metric, v float64, labels ...string)) {
	type sum struct {
		running, streams, files, rated int64
		goodput                        float64
		rtt, minRTT, queue             time.Duration
		bdp, inFlight, window          int64
		priorities                     map[fxfer.Priority]int64
	}
	none := func() *sum { return &sum{priorities: make(map[fxfer.Priority]int64)} }
	flows := make(map[[2]string]*sum)
	age := make(map[string]time.Duration)
	for _, s := range st.Shares { // so that idle shares report 0
		flows[[2]string{s.Name, "receive"}], flows[[2]string{s.Name, "send"}] = none(), none()
		age[s.Name] = 0
	}
	for i := range st.Transfers {
		x := &st.Transfers[i]
		key := [2]string{x.Share, direction(x.Receive)}
		f := flows[key]
		if f == nil { // the share is not offered any more
			f = none()
			flows[key] = f
		}
		f.running++
		f.priorities[x.Sharing.Priority]++
		f.streams += int64(x.Streams)
		f.files += max(0, x.Files-x.FilesDone-x.FilesFailed)
		f.goodput += x.Goodput
		if x.Network.RTT > 0 {
			f.rated++
			f.rtt += x.Network.RTT
		}
		if m := x.Network.MinRTT; m > 0 && (f.minRTT == 0 || m < f.minRTT) {
			f.minRTT = m
		}
		f.bdp += x.Network.BDP
		f.inFlight += x.Network.InFlight
		f.window += x.Network.Window
		f.queue = max(f.queue, x.Sharing.Queue)
		age[x.Share] = max(age[x.Share], x.AtRisk)
	}
	for key, f := range flows {
		l := key[:]
		put(&transfers, float64(f.running), l...)
		for _, p := range priorities {
			put(&prioritized, float64(f.priorities[p]), append(l, string(p))...)
		}
		put(&streams, float64(f.streams), l...)
		put(&underWay, float64(f.files), l...)
		put(&goodput, f.goodput/8, l...)
		if f.rated > 0 {
			put(&rtt, f.rtt.Seconds()/float64(f.rated), l...)
		}
		if f.minRTT > 0 {
			put(&minRTT, f.minRTT.Seconds(), l...)
		}
		put(&bdp, float64(f.bdp), l...)
		put(&inFlight, float64(f.inFlight), l...)
		put(&queue, f.queue.Seconds(), l...)
		put(&window, float64(f.window), l...)
	}
	for share, d := range age {
		put(&checkpoint, d.Seconds(), share)
	}
}

// traffic reports the counters of one share and direction.
func traffic(f *fxfer.ShareTraffic, x *scrape) {
	put, d := x.put, direction(f.Receive)
	for _, outcome := range fxfer.Outcomes() {
		put(&ended, float64(f.Sessions[outcome]), f.Share, d, outcome)
	}
	if !f.LastDone.IsZero() {
		put(&lastSuccess, float64(f.LastDone.UnixMilli())/1000, f.Share, d)
	}
	put(&payload, float64(f.Bytes), f.Share, d)
	put(&resumed, float64(f.Resumed), f.Share, d)
	put(&resent, float64(f.Resent), f.Share, d)
	for outcome, n := range f.Files {
		put(&files, float64(n), f.Share, d, outcome)
	}
	for limiter, t := range f.Limits {
		put(&limiters, t.Seconds(), f.Share, d, label(limiter))
	}
	for stage, t := range f.Stages {
		put(&stages, t.Seconds(), f.Share, d, stage)
	}
	var count uint64
	buckets := make(map[float64]uint64, len(f.Blocks.Bounds))
	for i, n := range f.Blocks.Counts {
		count += uint64(n)
		if i < len(f.Blocks.Bounds) {
			buckets[f.Blocks.Bounds[i].Seconds()] = count
		}
	}
	x.out <- prometheus.MustNewConstHistogram(x.descs[&blocks], count, f.Blocks.Spent.Seconds(), buckets, f.Share, d)
	put(&busy, f.Busy.Seconds(), f.Share, d)
	put(&rwnd, f.RwndLimited.Seconds(), f.Share, d)
	put(&sndbuf, f.SndbufLimited.Seconds(), f.Share, d)
	put(&segments, float64(f.Segments), f.Share, d)
	put(&retrans, float64(f.Retransmits), f.Share, d)
	put(&shared, f.Shared.Seconds(), f.Share, d)
	put(&yielded, f.Yielded.Seconds(), f.Share, d)
	for cause, n := range f.Lost {
		put(&lost, float64(n), f.Share, d, cause)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func direction(receive bool) string {
	if receive {
		return "receive"
	}
	return "send"
}

// label turns a name for people into a label value.
func label(s string) string {
	return strings.NewReplacer(" ", "_", ",", "").Replace(strings.ToLower(s))
}
