package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	branchGrid = "branch"

	vsftpdPort = 2122
	davPort    = 8443
	webPort    = 7434

	doorUser, doorPassword = "till", "a long password"

	momentEvery = 100 * time.Millisecond
	queueEvery  = 500 * time.Millisecond // fxfer queue is a process each time
	uploadLimit = 4 * time.Minute
	besideSpan  = 15 * time.Second // so long an upload is beside a flow at most
)

// branchLegs are the line of the branch's network and that to the centre.
var branchLegs = []lab.Leg{{Link: line(gbit, time.Millisecond, 1)}, {Link: line(100*mbit, 80*time.Millisecond, 1)}}

// route is a way for the files of a branch to the centre. The client always runs lftp.
type route struct {
	name    string
	forward string // more keys of the share that the server in the branch sends on; "": the client sends to the centre
	vsftpd  bool   // the centre has vsftpd
}

func (r *route) viaBranch() bool { return r.forward != "" }

var (
	viaBranch = route{name: "fxfer in the branch, `forward` at low", forward: "priority: low"}
	confirmed = route{name: "the same, `confirm: remote`", forward: "priority: low, confirm: remote, confirm-within: 1m"}
	toDoor    = route{name: "straight to fxfer in the centre"}
	toVsftpd  = route{name: "straight to vsftpd in the centre, in clear", vsftpd: true}
)

// delivery is an upload by a route, and the files' way to the centre.
type delivery struct {
	route       *route
	load        payload
	connections int

	failed   error
	wait     time.Duration // of the client, until lftp ended
	atExit   int           // files that were at the centre by then
	there    time.Duration // until all files were at the centre
	busy     time.Duration // from the first data on the WAN until then
	wire     int64         // bytes on the WAN, both directions, with the framing of Ethernet
	early    int           // times at which a file's state was there and the file was not
	paused   time.Duration // longest time in which the machine stood still
	moments  []moment
	listings []listing
}

// moment is what was to be seen at one time after the client began.
type moment struct {
	at     time.Duration
	door   counts // by .state
	board  counts // by the dashboard
	centre int    // whole files at the centre
	wire   int64  // bytes on the WAN to the centre
}

// listing is what "fxfer queue" said at one time.
type listing struct {
	at time.Duration
	counts
}

// counts are files by state.
type counts struct {
	Arriving int `json:"arriving"`
	Waiting  int `json:"waiting"`
	Sending  int `json:"sending"`
	There    int `json:"there"`
}

// add counts a file in a state.
func (c *counts) add(state string) {
	switch state {
	case "arriving":
		c.Arriving++
	case "waiting":
		c.Waiting++
	case "sending":
		c.Sending++
	case "there":
		c.There++
	}
}

// String is the word for a single file, or the counts of several.
func (c counts) String() string {
	var parts []string
	for _, x := range []struct {
		n    int
		word string
	}{{c.Arriving, "arriving"}, {c.Waiting, "waiting"}, {c.Sending, "sending"}, {c.There, "there"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.word))
		}
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.TrimPrefix(strings.Join(parts, ", "), "1 ")
}

// site is a branch with a client and a server, and a centre.
type site struct {
	*folder
	lab                    *lab.Lab
	client, branch, centre *lab.Host
	fxfer                  *hosts.Fxfer // the server in the centre, whose client is that in the branch
	shares                 []*route     // that the server in the branch sends on; their names are f0, f1 and so on
	door, board            *http.Client
	token                  string // of the dashboard
	undo                   func() error
}

// newSite starts all servers. Each forward has a share of its own for each delivery, so that the
// queues begin empty. The caller closes the site.
func newSite(ctx context.Context, f *folder, shares []*route) (s *site, err error) {
	l, err := lab.StartChain(branchLegs)
	if err != nil {
		return nil, err
	}
	undo, err := setUpHosts(l, cubicDefault)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the hosts: %w", err), l.Close())
	}
	s = &site{folder: f, lab: l, client: l.Left, branch: l.Middle[0], centre: l.Right, shares: shares, undo: undo}
	s.door, s.board = dialer(s.client), dialer(s.branch)
	if err := s.serve(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *site) close() error { return errors.Join(s.lab.Close(), s.undo()) }

// dialer returns a client of HTTP on a host.
func dialer(h *lab.Host) *http.Client {
	dial := func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = h.Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the door has made its certificate itself
	}}
}

// serve starts the servers: in the centre vsftpd and fxfer, and fxfer in the branch.
func (s *site) serve(ctx context.Context) error {
	for _, h := range []*lab.Host{s.client, s.branch, s.centre} { // a run does not begin with what another one has learned
		err := h.Do(func() error { return hosts.SetSysctl("net/ipv4/tcp_no_metrics_save", "1") })
		if err != nil {
			return err
		}
	}
	vsftpd := hosts.Command{Host: s.centre, Argv: []string{find("vsftpd"), "conf/vsftpd.conf"}}
	text := vsftpdConfig(vsftpdPort, s.Abs("in")) + "write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\nanon_umask=022\nallow_writeable_chroot=YES\n"
	if err := s.Write("conf/vsftpd.conf", text); err != nil {
		return err
	}
	if _, err := s.Serve(ctx, vsftpd, vsftpdPort); err != nil {
		return err
	}
	s.fxfer = &hosts.Fxfer{Folder: s.Folder, Server: s.centre, Client: s.branch, Addr: s.centre.Addr(), Port: fxferPort, Home: "home/centre"}
	if err := s.fxfer.Start(ctx, "--share", "in=in", "--ftp", ":"+strconv.Itoa(ftpPort)); err != nil {
		return fmt.Errorf("the centre: %w", err)
	}

	if len(s.shares) > 0 {
		if err := s.serveBranch(ctx); err != nil {
			return fmt.Errorf("the branch: %w", err)
		}
	}
	for _, home := range []string{"server", "client"} { // of the centre and of the branch
		add := s.fxfer.Warm("clients", "password", doorUser, "--share", "*")
		add.Env = []string{"FXFER_HOME=" + s.Abs(s.fxfer.Home+"/"+home)}
		cmd := s.Prepare(ctx, add)
		cmd.Stdin = strings.NewReader(doorPassword)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", add, err, out)
		}
	}
	return nil
}

// serveBranch starts the server in the branch.
func (s *site) serveBranch(ctx context.Context) error {
	var config strings.Builder
	fmt.Fprintf(&config, "listen: \":%d\"\nweb: %d\ndoors: {ftp: \":%d\", webdav: \":%d\"}\nshares:\n", fxferPort, webPort, ftpPort, davPort)
	for i, r := range s.shares {
		name := shareName(i)
		if err := s.Mkdir("branch/" + name); err != nil {
			return err
		}
		fmt.Fprintf(&config, "  %s: {dir: %q, forward: {url: %q, %s}}\n", name, s.Abs("branch/"+name), s.fxfer.URL("in/"+name), r.forward)
	}
	if err := s.Write("conf/branch.yaml", config.String()); err != nil {
		return err
	}
	if _, err := s.Serve(ctx, s.fxfer.Warm("serve", "--config", s.Abs("conf/branch.yaml")), davPort); err != nil {
		return err
	}
	token, err := os.ReadFile(s.Abs(s.fxfer.Home + "/client/web-token"))
	s.token = strings.TrimSpace(string(token))
	return err
}

func shareName(i int) string { return "f" + strconv.Itoa(i) }

// lftp returns the command of the client that brings a payload into the folder of that name.
func (s *site) lftp(d *delivery, l *load, name string) hosts.Command {
	script := "set net:max-retries 2; set file:use-fallocate no; set xfer:buffer-size 1048576; set ftp:sync-mode no; "
	to, port := s.centre.Addr(), ftpPort
	folder := "/in/" + name
	switch {
	case d.route.vsftpd:
		port, folder = vsftpdPort, name
		script += "set ftp:ssl-allow no; open "
	case d.route.viaBranch():
		to, folder = s.branch.Addr(), "/"+name
		fallthrough
	default:
		script += fmt.Sprintf("set ftp:ssl-force yes; set ftp:ssl-protect-data yes; set ssl:verify-certificate no; open -u %s,'%s' ", doorUser, doorPassword)
	}
	script += fmt.Sprintf("-p %d ftp://%v; mirror -R --no-perms --parallel=%d %s %s", port, to, d.connections, l.dir, folder)
	return hosts.Command{Host: s.client, Argv: []string{find("lftp"), "-c", script}}
}

// deliver performs d. name is that of a folder in the centre and, if d goes by the branch, of a share.
func (s *site) deliver(ctx context.Context, d *delivery, name string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, uploadLimit)
	defer cancel()
	l := s.loads[d.load]
	paused := hosts.Watch()
	defer func() { d.paused = paused() }()
	line := s.wan()
	c := s.lftp(d, l, name)
	cmd := s.Prepare(ctx, c)
	var said hosts.Output
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	exit := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		d.wait = time.Since(began)
		exit <- err
	}()
	listed := make(chan []listing, 1)
	listing, unlisten := context.WithCancel(ctx)
	defer unlisten()
	go func() { listed <- s.list(listing, d, name, began) }()

	tick := time.NewTicker(momentEvery)
	defer tick.Stop()
	waiting := true
	for waiting || !d.over() {
		select {
		case err := <-exit:
			waiting = false
			if err != nil {
				return c.Failure(err, &said)
			}
			d.atExit = s.arrivals(l, name)
		case <-tick.C:
			m, err := s.look(ctx, d, l, name)
			if err != nil {
				return err
			}
			m.at, m.wire = time.Since(began), wire(s.wan()[0])-wire(line[0])
			d.moments = append(d.moments, m)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	unlisten()
	d.listings = <-listed
	after := s.wan()
	d.wire = wire(after[0]) + wire(after[1]) - wire(line[0]) - wire(line[1])
	d.there, d.busy = d.spans()
	return s.same(l, name)
}

// over reports whether all files are there, and each word says so.
func (d *delivery) over() bool {
	if len(d.moments) == 0 {
		return false
	}
	last := d.moments[len(d.moments)-1]
	return last.centre == d.load.files && (!d.route.viaBranch() || last.door.There == d.load.files && last.board.There == d.load.files)
}

// spans returns when all files were in the centre, and for how long the WAN was in use until then.
func (d *delivery) spans() (there, busy time.Duration) {
	var begin time.Duration // of the first data: before it there are logins
	for i, m := range d.moments {
		if m.wire < 64*kib && i+1 < len(d.moments) {
			begin = m.at
		}
		if m.centre == d.load.files {
			return m.at, m.at - begin
		}
	}
	return 0, 0
}

// wan returns the counters of the WAN, to the centre and back.
func (s *site) wan() [2]lab.Counters { return s.lab.LegCounters()[1] }

// wire is the bytes on the wire of what was delivered.
func wire(c lab.Counters) int64 { return c.Bytes + 38*c.Delivered }

// arrivals returns how many of the files are whole in the centre.
func (s *site) arrivals(l *load, name string) (n int) {
	for _, file := range l.names {
		if info, err := os.Stat(s.Abs("in/" + name + "/" + file)); err == nil && info.Size() == l.size {
			n++
		}
	}
	return n
}

// same returns an error unless the files in the centre are the client's.
func (s *site) same(l *load, name string) error {
	for _, file := range l.names {
		digest, err := b3sum(context.Background(), s.Abs("in/"+name+"/"+file))
		if err == nil && digest != l.digests[file] {
			err = fmt.Errorf("%s arrived with other content", file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look reads what clients and administrators see of the files, and counts those in the centre.
func (s *site) look(ctx context.Context, d *delivery, l *load, name string) (m moment, err error) {
	if !d.route.viaBranch() {
		m.centre = s.arrivals(l, name)
		return m, nil
	}
	text, err := s.get(ctx, s.door, "https://"+hostPort(s.branch.Addr(), davPort)+"/"+name+"/.state")
	if err != nil {
		return m, err
	}
	m.centre = s.arrivals(l, name)
	for line := range strings.Lines(text) {
		state, _, _ := strings.Cut(line, " ")
		m.door.add(state)
	}
	if m.door.There > m.centre {
		d.early++
	}
	text, err = s.get(ctx, s.board, "http://127.0.0.1:"+strconv.Itoa(webPort)+"/api/queues")
	if err != nil {
		return m, err
	}
	var queues []struct {
		Share string `json:"share"`
		counts
	}
	if err := json.Unmarshal([]byte(text), &queues); err != nil {
		return m, fmt.Errorf("read the dashboard's data: %w", err)
	}
	for _, q := range queues {
		if q.Share == name {
			m.board = q.counts
		}
	}
	return m, nil
}

// get returns what a door or the dashboard answers.
func (s *site) get(ctx context.Context, c *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if c == s.door {
		r.SetBasicAuth(doorUser, doorPassword)
	} else {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	a, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, a.Status)
	}
	return string(text), err
}

// list runs "fxfer queue" again and again until ctx ends. It leaves out what fails.
func (s *site) list(ctx context.Context, d *delivery, name string, began time.Time) (all []listing) {
	if !d.route.viaBranch() {
		return nil
	}
	for pause(ctx, queueEvery) == nil {
		at := time.Since(began)
		out, err := s.Prepare(ctx, s.fxfer.Warm("queue", "ls", "--json", s.Abs("branch/"+name))).Output()
		line, _, _ := strings.Cut(string(out), "\n")
		x := listing{at: at}
		if err == nil && json.Unmarshal([]byte(line), &x.counts) == nil {
			all = append(all, x)
		}
	}
	return all
}

// companion is a cubic flow on the WAN that was there first, with an upload beside it.
type companion struct {
	name   string
	failed error
	rate   float64       // goodput of the flow while the upload was there, bit/s
	others float64       // what else was on the WAN meanwhile, as payload, bit/s
	span   time.Duration // so long they were together
}

// accompany measures what a flow gets beside a delivery, nil for none.
func (s *site) accompany(ctx context.Context, d *delivery, name string) (x companion, err error) {
	ctx, cancel := context.WithTimeout(ctx, uploadLimit)
	defer cancel()
	var got atomic.Int64
	end, err := s.flow(&got)
	if err != nil {
		return x, err
	}
	defer end()
	if err := pause(ctx, lead); err != nil {
		return x, err
	}
	ended := make(chan struct{})
	if d != nil {
		c := s.lftp(d, s.loads[d.load], name)
		cmd := s.Prepare(ctx, c)
		if err := cmd.Start(); err != nil {
			return x, err
		}
		go func() {
			_ = cmd.Wait() // it may be stopped
			close(ended)
		}()
		defer cmd.Stop(ended, stopGrace)
	}
	stop := ended
	if d != nil && d.route.viaBranch() { // what it sends on begins later, and lasts longer
		stop = nil
		for m := (moment{}); m.door.Sending == 0; {
			if m, err = s.look(ctx, d, s.loads[d.load], name); err == nil {
				err = pause(ctx, momentEvery)
			}
			if err != nil {
				return x, err
			}
		}
	}
	began, bytes, line := time.Now(), got.Load(), wire(s.wan()[0])
	select {
	case <-stop:
	case <-time.After(besideSpan):
	case <-ctx.Done():
		return x, context.Cause(ctx)
	}
	x.span = time.Since(began)
	x.rate = float64(got.Load()-bytes) * 8 / x.span.Seconds()
	x.others = goodputLimit((wire(s.wan()[0])-line)*8)/x.span.Seconds() - x.rate
	return x, nil
}

// flow starts a TCP flow with the congestion control of the hosts, from the branch to the centre. It
// adds to got what arrives, until end is called.
func (s *site) flow(got *atomic.Int64) (end func(), err error) {
	var l net.Listener
	var from, to net.Conn
	err = s.centre.Do(func() error {
		l, err = net.Listen("tcp", s.centre.Addr().String()+":0")
		return err
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	err = s.branch.Do(func() error {
		from, err = net.Dial("tcp", l.Addr().String())
		return err
	})
	if err != nil {
		return nil, err
	}
	if to, err = l.Accept(); err != nil {
		return nil, errors.Join(err, from.Close())
	}
	done := make(chan struct{}, 2)
	go func() {
		for chunk, err := make([]byte, 1<<16), error(nil); err == nil; {
			_, err = from.Write(chunk)
		}
		done <- struct{}{}
	}()
	go func() {
		for chunk, n, err := make([]byte, 1<<16), 0, error(nil); err == nil; got.Add(int64(n)) {
			n, err = to.Read(chunk)
		}
		done <- struct{}{}
	}()
	return func() {
		from.Close()
		to.Close()
		<-done
		<-done
	}, nil
}
