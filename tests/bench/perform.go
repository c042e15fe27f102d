package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	tickEvery = 50 * time.Millisecond
	lookEvery = 4               // ticks from one look at sockets and files to the next
	lateEnd   = 5 * time.Second // iperf3 may take so much longer to report
	longPause = time.Second     // without a tick: the machine was too busy to measure
	attempts  = 3               // to perform a scene while the machine is not too busy
	patience  = 6               // a whole command may take so many times as long as on an idle line
)

// sharedResult is a measured row.
type sharedResult struct {
	row    *sharedRow
	takes  [][]figures // of each scene, of each run
	failed error       // why the rest was not measured
}

// aloneKey identifies a scene without a player: what is the same for all who come to it.
type aloneKey struct {
	link   string
	others lab.Cross
	hosts  setup
	span   time.Duration
	rep    int
}

// share measures the rows of a grid.
func (b *bench) share(ctx context.Context, rows []sharedRow, reps int) []sharedResult {
	var results []sharedResult
	alone := map[aloneKey]*take{}
	for i := range rows {
		r := sharedResult{row: &rows[i], takes: make([][]figures, len(rows[i].scenes))}
		for j := range rows[i].scenes {
			if r.failed = errors.Join(ctx.Err(), b.act(ctx, &rows[i], j, reps, alone, &r)); r.failed != nil {
				b.say("%s: %v", rows[i].fullName(), r.failed)
				break
			}
		}
		results = append(results, r)
	}
	return results
}

// act measures one scene of a row.
func (b *bench) act(ctx context.Context, row *sharedRow, j, reps int, alone map[aloneKey]*take, r *sharedResult) (err error) {
	sc := &row.scenes[j]
	if err := b.keep(ctx, []payload{sc.load()}); err != nil {
		return err
	}
	s, err := newStage(b.folder, scenario{link: sc.link, hosts: sc.hosts})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	e, err := row.player.enter()
	if err != nil {
		return err
	}
	if err := e.missing(); err != nil {
		return err
	}
	if err := e.serve(ctx, s); err != nil {
		return fmt.Errorf("start its server: %w", err)
	}
	for rep := range reps {
		var without *take
		if sc.others != nil {
			empty := sc.alone()
			key := aloneKey{fmt.Sprintf("%+v", empty.link), *empty.others, empty.hosts, empty.span, rep}
			if alone[key] == nil {
				if alone[key], err = b.undisturbed(ctx, s, &empty, nil, nil); err != nil {
					return err
				}
			}
			without = alone[key]
		}
		t, err := b.undisturbed(ctx, s, sc, e, row.player.flags)
		if err != nil {
			return err
		}
		f := t.figures(sc, without)
		r.takes[j] = append(r.takes[j], f)
		b.say("%s, scene %d: %s, %.1f ms added, %.2f %% dropped", row.fullName(), j+1, showRate(f.goodput), 1000*f.median, 100*f.dropped)
		if sc.others != nil {
			b.say("    the others have %s beside it, %s alone", showRate(f.flow), showRate(f.flowAlone))
		}
	}
	return nil
}

// enter returns the player as an entrant.
func (p *player) enter() (*entrant, error) {
	switch p.program {
	case fxferName, fxferBeforeName:
		x := newFxfer(p.program)
		return &entrant{contender: x.contender(), fxfer: x}, nil
	case iperfName:
		return &entrant{contender: contender{name: iperfName, needs: []string{"iperf3"}, serve: startIperf, transfer: iperfCommand}}, nil
	}
	for _, c := range peers() {
		if c.name == p.program {
			return &entrant{contender: c}, nil
		}
	}
	return nil, fmt.Errorf("there is no contender %s", p.program)
}

func iperfCommand(_ context.Context, s *stage, _ *load, flags []string) (hosts.Command, error) {
	argv := []string{find("iperf3"), "-c", s.receiverAddr.String(), "-p", strconv.Itoa(iperfPort), "-J"}
	return hosts.Command{Host: s.sender, Argv: append(argv, flags...)}, nil
}

// showFlagRate formats a rate for iperf3.
func showFlagRate(bits int64) string { return strconv.FormatInt(bits/1000, 10) + "K" }

// session is a running command of a player.
type session struct {
	cmd    *lab.Cmd
	about  hosts.Command
	stdout hosts.Output
	stderr hosts.Output
	ended  chan struct{}
	exit   error         // valid when ended is closed
	took   time.Duration // the same
	points []point       // of what is in in/
}

var errBusy = fmt.Errorf("the machine is too busy: nothing ran for more than %v", longPause)

// undisturbed performs a scene again if the machine was too busy.
func (b *bench) undisturbed(ctx context.Context, s *stage, sc *scene, e *entrant, flags []string) (*take, error) {
	for attempt := 1; ; attempt++ {
		t, err := b.perform(ctx, s, sc, e, flags)
		if !errors.Is(err, errBusy) || attempt == attempts {
			return t, err
		}
		b.say("once more: %v", err)
	}
}

// perform plays a scene with a player, or with the others only.
func (b *bench) perform(ctx context.Context, s *stage, sc *scene, e *entrant, flags []string) (t *take, err error) {
	ctx, cancel := context.WithTimeout(ctx, sc.lead+patience*sc.span+time.Minute)
	defer cancel()
	s.quiesce(ctx)
	var sessions []*session
	var l *load
	if e != nil {
		l = b.loads[sc.load()]
		if err := errors.Join(s.Empty("in"), s.warm(l.room())); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.Empty("in")) }()
		if sessions, err = prepare(ctx, s, sc, e, l, flags); err != nil {
			return nil, err
		}
	}
	t = &take{}
	stop, err := t.populate(s, sc)
	if err != nil {
		return nil, err
	}
	err = t.play(ctx, s, sc, sessions)
	for _, x := range sessions {
		err = errors.Join(err, x.end(sc, e))
	}
	stop()
	if err != nil || e == nil {
		return t, err
	}
	return t, t.collect(sc, e, l, sessions)
}

// populate brings the others and the ping to the line. stop sends them away.
func (t *take) populate(s *stage, sc *scene) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	cross := func(c lab.Cross, report **lab.CrossReport) error {
		traffic, err := s.lab.StartCross(c)
		if err == nil {
			stops = append(stops, func() { *report = traffic.Stop() })
		}
		return err
	}
	ping, err := s.lab.StartPing()
	if err != nil {
		return stop, err
	}
	stops = append(stops, func() { t.trips = ping.Stop().Trips })
	if sc.others != nil {
		err = cross(*sc.others, &t.others)
	}
	if sc.udp && err == nil {
		err = cross(lab.Cross{Rate: udpRate}, &t.udp)
	}
	if err != nil {
		stop()
	}
	return stop, err
}

// prepare returns the player's commands, not yet started.
func prepare(ctx context.Context, s *stage, sc *scene, e *entrant, l *load, flags []string) ([]*session, error) {
	if e.name == iperfName {
		flags = append([]string{"-t", strconv.Itoa(int(sc.span / time.Second))}, flags...)
	}
	if sc.sessions <= 1 {
		c, err := e.transfer(ctx, s, l, flags)
		if err != nil {
			return nil, err
		}
		return []*session{newSession(ctx, s, c)}, nil
	}
	var all []*session
	for i := range sc.sessions {
		c, err := e.fxfer.transferAs(i, l, flags)
		if err != nil {
			return nil, err
		}
		all = append(all, newSession(ctx, s, c))
	}
	return all, nil
}

func newSession(ctx context.Context, s *stage, c hosts.Command) *session {
	x := &session{cmd: s.Prepare(ctx, c), about: c, ended: make(chan struct{})}
	x.cmd.Stdout, x.cmd.Stderr = &x.stdout, &x.stderr
	return x
}

func (x *session) start() error {
	begin := time.Now()
	if err := x.cmd.Start(); err != nil {
		close(x.ended)
		return err
	}
	go func() {
		defer close(x.ended)
		x.exit = x.cmd.Wait()
		x.took = time.Since(begin)
	}()
	return nil
}

func (x *session) running() bool {
	select {
	case <-x.ended:
		return false
	default:
		return true
	}
}

// play lets the scene run its course, and counts.
func (t *take) play(ctx context.Context, s *stage, sc *scene, sessions []*session) error {
	begin := time.Now()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	sockets := resends{}
	changes, started := sc.changes, false
	for n := 0; ; n++ {
		at := time.Since(begin)
		if n > 0 && at-t.ticks[n-1].at > longPause {
			return errBusy
		}
		there, _ := s.lab.Counters()
		t.ticks = append(t.ticks, tally{at, there})
		for len(changes) > 0 && at >= changes[0].at {
			if err := s.lab.Set(changes[0].line); err != nil {
				return err
			}
			changes = changes[1:]
		}
		over := !sc.whole && at >= sc.lead+sc.span
		if started && (n%lookEvery == 0 || over) {
			if err := sockets.look(s.sender); err != nil {
				return fmt.Errorf("read the sender's sockets: %w", err)
			}
			for _, x := range sessions {
				x.points = append(x.points, point{at - t.from, s.landed()})
			}
		}
		if t.to = at; over || started && sessions != nil && !anyRuns(sessions) {
			t.sent, t.resent = sockets.sum()
			return nil
		}
		if !started && at >= sc.lead {
			started, t.from = true, at
			for _, x := range sessions {
				if err := x.start(); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func anyRuns(sessions []*session) bool {
	for _, x := range sessions {
		if x.running() {
			return true
		}
	}
	return false
}

// end stops a session that still runs. It returns an error if the session failed.
func (x *session) end(sc *scene, e *entrant) error {
	if x.cmd.Process == nil { // never started
		return nil
	}
	if e.name == iperfName {
		select {
		case <-x.ended:
		case <-time.After(lateEnd):
		}
	}
	if x.running() {
		x.cmd.Stop(x.ended, stopGrace)
		return nil
	}
	if x.exit != nil {
		return x.about.Failure(x.exit, &x.stderr, &x.stdout)
	}
	return nil
}

// collect takes what the commands of the player report.
func (t *take) collect(sc *scene, e *entrant, l *load, sessions []*session) error {
	for _, x := range sessions {
		points := x.points
		switch {
		case e.name == iperfName:
			rate, err := iperfRate([]byte(x.stdout.String()))
			if err != nil {
				return err
			}
			points = []point{{sc.span, int64(rate * sc.span.Seconds() / 8)}}
		case e.fxfer != nil:
			progress, digests, summary, err := parseFxfer(x.stdout.String())
			if err != nil {
				return err
			}
			points = progress
			if sc.whole {
				if err := checkDigests(digests, l.digests); err != nil {
					return err
				}
				points = []point{{x.took, l.bytes()}}
			}
			if t.sent == 0 && sc.whole { // QUIC has no sockets that know
				t.sent, _ = t.ticks[len(t.ticks)-1].own()
				t.resent = summary.Retransmits
			}
		}
		t.sessions = append(t.sessions, points)
	}
	return nil
}

// resends has the segments that each TCP socket of the sender sent, by the socket's cookie.
type resends map[[2]uint32]segments

type segments struct{ sent, again int64 }

// sum returns the segments of all sockets, and those of them that were sent again.
func (r resends) sum() (sent, again int64) {
	for _, n := range r {
		sent += n.sent
		again += n.again
	}
	return sent, again
}

// takeOlder copies an older fxfer into the folder, to take part.
func (b *bench) takeOlder(program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	return os.WriteFile(b.Abs(fxferBeforeFile), content, 0o755)
}

const (
	sharedReps   = 3
	quickSeconds = 5
)

// named reports whether -grid selects the grid: by its name, or by that of its page.
func (g *sharing) named(name string) bool { return name != "" && (name == g.name || name == g.page) }

// shareAll measures the rows of a grid that match a pattern. It writes the report into docs, or prints
// it if docs is "".
func (b *bench) shareAll(ctx context.Context, g *sharing, pattern *regexp.Regexp, docs string) error {
	rows := slices.DeleteFunc(slices.Clone(g.rows), func(r sharedRow) bool { return !pattern.MatchString(r.fullName()) })
	if len(rows) == 0 {
		return nil
	}
	if g.page == neighboursPage { // its chart has what is measured now, and so has its page
		measured := *g
		measured.rows = rows
		g = &measured
	}
	m, err := describeMachine(time.Now())
	if err != nil {
		return fmt.Errorf("describe the machine: %w", err)
	}
	reps := cmp.Or(b.reps, sharedReps)
	if b.quick {
		reps = cmp.Or(b.reps, 1)
	}
	results := b.share(ctx, rows, reps)
	section := func(old string) string {
		return strings.ReplaceAll(sharedSection(g, &m, results, reps, old), b.Path+"/", "")
	}
	if docs == "" || ctx.Err() != nil {
		fmt.Println(section(""))
		return ctx.Err()
	}
	return writeShared(docs, g, section, results)
}

// writeShared puts the section of a grid into its page. section makes it of the older one.
func writeShared(docs string, g *sharing, section func(old string) string, results []sharedResult) error {
	var names []string
	for _, other := range sharings(time.Second, false) {
		if other.page == g.page {
			names = append(names, other.name)
		}
	}
	path, intro := filepath.Join(docs, g.page+".md"), windowIntro
	if g.page == neighboursPage {
		intro = neighboursIntro
		if err := os.WriteFile(filepath.Join(docs, officeChartName), []byte(officeChart(results)), 0o644); err != nil {
			return err
		}
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	older, _, _ := cutSection(string(old), g.name)
	return os.WriteFile(path, []byte(replaceSection(string(old), intro, g.name, section(older), names)), 0o644)
}
