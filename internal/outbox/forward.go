package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/webhook"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Forward says where the files of a share are sent on to, and how. It can be compared with ==.
type Forward struct {
	Share     string
	Dir       string // of the share, absolute
	URL       fxfer.URL
	Pin       string // the key of the server at URL; "" accepts the one that is known
	Priority  fxfer.Priority
	RateLimit int64 // bit/s; 0 is none
	Settle    time.Duration
	Then      Then
	// ConfirmWithin is how long clients at doors wait until what they have sent is there; 0 is not at
	// all.
	ConfirmWithin time.Duration
	Webhook       Webhook
}

// Webhook gets the news of files. The zero Webhook is none.
type Webhook struct {
	URL    string // of HTTP; it may be secret
	Secret string // file with the token of the header Authorization, "" for none
}

// Forwards sends the files of shares on, in the process of their server. The methods are safe for
// concurrent use.
type Forwards struct {
	opt fxfer.Options // of all clients
	log *slog.Logger

	applying sync.Mutex // held while Apply works

	mu      sync.Mutex // guards the following; not held while something ends
	running map[string]*forwarding
	closed  bool
}

// forwarding is a share whose files are sent on.
type forwarding struct {
	Forward
	queue  *Queue
	urgent urgent
	stop   context.CancelFunc
	// successor returns what sends the share on now, nil for none. It is another one only once stopped
	// is closed.
	successor func() *forwarding
	stopped   <-chan struct{}
	ended     chan struct{}

	listing sync.Mutex // guards the following
	listed
	until time.Time // no newer list is made before
	fault string    // why no watcher runs, "" if one does
}

// NewForwards returns a Forwards that sends nothing on yet. opt are the options of all its clients;
// the queues are in opt.Home. The caller closes it.
func NewForwards(opt fxfer.Options, log *slog.Logger) *Forwards {
	return &Forwards{opt: opt, log: log, running: make(map[string]*forwarding)}
}

// Apply replaces what is sent on by these, one for each share. A Forward that is equal to a present
// one goes on undisturbed. Apply returns when the others have ended. Clients of a share whose Forward
// has changed find the new one at once; it begins to send when the old one has ended.
func (s *Forwards) Apply(all []Forward) {
	s.applying.Lock()
	defer s.applying.Unlock()
	var ending []*forwarding
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	for name, x := range s.running {
		if !slices.Contains(all, x.Forward) {
			ending = append(ending, x)
			delete(s.running, name)
		}
	}
	for _, f := range all {
		if s.running[f.Share] == nil {
			s.beginLocked(f, ending)
		}
	}
	for _, x := range ending {
		x.stop()
	}
	s.mu.Unlock()
	await(ending)
}

// Close ends all of them. From then on, they confirm nothing that is not there.
func (s *Forwards) Close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.running))
	for _, x := range all {
		x.stop()
	}
	s.mu.Unlock()
	await(all)
}

// await returns when these have ended.
func await(all []*forwarding) {
	for _, x := range all {
		<-x.ended
	}
}

// Of returns what sends the files of a share on, nil if nothing does. It is for the server's options.
func (s *Forwards) Of(share string) fxfer.Forwarder {
	if x := s.of(share); x != nil {
		return x
	}
	return nil
}

func (s *Forwards) of(share string) *forwarding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[share]
}

// ForwardStatus is a share whose files are sent on.
type ForwardStatus struct {
	Share string
	URL   string // without secrets
	About
	Unread bool // the queue cannot be read: Sum is not known
	Sum
}

// Status returns what is sent on, by share. Error is why nothing is sent at the moment, "" if it is.
func (s *Forwards) Status() (all []ForwardStatus) {
	s.mu.Lock()
	running := slices.SortedFunc(maps.Values(s.running), func(a, b *forwarding) int { return cmp.Compare(a.Share, b.Share) })
	s.mu.Unlock()
	for _, x := range running {
		l, err := x.look()
		if err != nil {
			l.about.Error = err.Error()
		}
		all = append(all, ForwardStatus{x.Share, x.place(), l.about, err != nil, l.sum})
	}
	return all
}

// listed is what people see of a queue.
type listed struct {
	about  About
	sum    Sum
	states []fxfer.Forwarded
	cut    bool // there are more
}

// Bounds of look. Its list is at most listFor old, or listShare times as long as it took to make,
// and has at most maxListed files.
const (
	listFor   = 200 * time.Millisecond
	listShare = 10
	maxListed = 100_000
)

// look returns the queue as it was a moment ago: clients may ask often, and a queue may be long.
func (x *forwarding) look() (listed, error) {
	x.listing.Lock()
	defer x.listing.Unlock()
	began := time.Now()
	if began.Before(x.until) {
		return x.listed, nil
	}
	about, files, err := x.queue.List()
	if err != nil {
		return listed{}, err
	}
	about.Error = cmp.Or(x.fault, about.Error)
	states, cut := statesOf(files, began)
	x.listed = listed{about, SumOf(files), states, cut}
	now := time.Now()
	x.until = now.Add(max(listFor, listShare*now.Sub(began)))
	return x.listed, nil
}

// States implements fxfer.Forwarder.
func (x *forwarding) States() (all []fxfer.Forwarded, cut bool, err error) {
	l, err := x.look()
	return l.states, l.cut, err
}

// StatesOf implements fxfer.Forwarder. It asks the queue only where the list does not have all.
func (x *forwarding) StatesOf(paths []string) ([]fxfer.Forwarded, error) {
	l, err := x.look()
	if err != nil {
		return nil, err
	}
	if l.cut {
		files, err := x.queue.some(paths)
		all, _ := statesOf(files, time.Now())
		return all, err
	}
	asked := make(map[string]bool, len(paths))
	for _, p := range paths {
		asked[p] = true
	}
	var all []fxfer.Forwarded
	for _, f := range l.states {
		if asked[f.Path] {
			all = append(all, f)
		}
	}
	return all, nil
}

// statesOf returns the files that are on their way, then those that are there since less than a day.
// It reports whether there are more than that.
func statesOf(files []Listing, now time.Time) (all []fxfer.Forwarded, cut bool) {
	for _, there := range []bool{false, true} {
		for _, f := range files {
			since := f.Arrived
			if f.State == There {
				since = f.There
			}
			switch {
			case there != (f.State == There), there && now.Sub(since) > forgetAfter:
				continue
			case len(all) == maxListed:
				return all, true
			}
			all = append(all, fxfer.Forwarded{Path: f.Path, State: f.Word(), Since: since})
		}
	}
	return all, false
}

// Confirm implements fxfer.Forwarder. The file is whole: the client that waits for it has said so. If
// another forwarding takes over meanwhile, that one confirms.
func (x *forwarding) Confirm(ctx context.Context, path string) (state string, err error) {
	late := time.Now().Add(x.ConfirmWithin)
	for {
		if x.ConfirmWithin == 0 {
			return "", nil
		}
		var final bool
		if state, final, err = x.confirm(ctx, path, late); final || err != nil {
			return state, err
		}
		next := x.successor()
		if next == nil || next == x {
			return state, nil
		}
		x = next
	}
}

// confirm is Confirm that waits until a time. The state is not final if x was stopped.
func (x *forwarding) confirm(ctx context.Context, path string, until time.Time) (state string, final bool, err error) {
	defer x.urgent.add(path)()
	root, err := os.OpenRoot(x.Dir)
	if err != nil {
		return "", false, errors.New("open the share: " + cause(err).Error()) // not that the file is gone
	}
	defer root.Close()
	version := look(root, path)
	if version == nil {
		return "", false, errReplaced
	}
	steady, sendable := firstSeen{*version, time.Now()}, finds(root, path)
	changed, done := x.queue.follow(path)
	defer done()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		f, err := x.queue.file(path)
		if err != nil {
			return "", false, err
		}
		v, now := look(root, path), time.Now()
		if v != nil && v.sameButRenamed(*version) { // a snapshot links to it, and changes its change time
			version = v
		}
		state = string(Arriving)
		if f != nil && f.Version == *version {
			state = f.Word()
		}
		pause := lookEvery
		switch {
		case state == string(There), state == dropped:
			return state, true, nil
		case v == nil, *v != *version:
			return "", false, errReplaced
		case !now.Before(until):
			return state, true, nil
		case state != string(Arriving), !sendable:
		case *v != steady.version:
			steady, pause = firstSeen{*v, now}, MinSettle
		case now.Sub(steady.since) < MinSettle:
			pause = MinSettle
		case !isOpen(root, path):
			if err := x.urgent.enqueue(x.queue, root, path, *v, now); err != nil {
				return "", false, err
			}
		}
		tick.Reset(min(pause, time.Until(until)))
		select {
		case <-changed:
		case <-tick.C: // another process changes the queue in silence
		case <-x.stopped:
			return state, false, nil
		case <-ctx.Done():
			return "", false, context.Cause(ctx)
		}
	}
}

// errReplaced means that a file that somebody waits for is no more what it was.
var errReplaced = fmt.Errorf("somebody has changed or removed it: %w", fs.ErrNotExist)

// beginLocked lets a forwarding take over from others, which it waits for.
func (s *Forwards) beginLocked(f Forward, others []*forwarding) {
	ctx, stop := context.WithCancel(context.Background())
	x := &forwarding{
		Forward: f, queue: OpenQueue(s.opt.Home, f.Dir, f.place()), urgent: newUrgent(),
		stop: stop, successor: func() *forwarding { return s.of(f.Share) }, stopped: ctx.Done(), ended: make(chan struct{}),
	}
	s.running[f.Share] = x
	opt, log := s.opt, s.log.With("share", f.Share, "to", f.place())
	opt.Pin, opt.Priority = f.Pin, f.Priority
	opt.Notice = func(text string) { log.Info(text) }
	go func() {
		defer close(x.ended)
		await(others)
		x.run(ctx, opt, log)
	}()
}

// place is the URL without secrets.
func (f Forward) place() string {
	u := f.URL
	u.TrailingSlash = false
	return u.Redacted()
}

// Excludes reports whether only one of two shares can be sent on: they have one folder, and one queue
// or one of them removes what the other one is to send.
func (f Forward) Excludes(other Forward) bool {
	same := IsInside(f.Dir, other.Dir) && IsInside(other.Dir, f.Dir)
	return same && (f.place() == other.place() || f.Then.removes() || other.Then.removes())
}

// run watches until ctx ends. A server has nobody to ask, and its administrator may cure what is
// wrong at any time: so it tries again after any error.
func (x *forwarding) run(ctx context.Context, opt fxfer.Options, log *slog.Logger) {
	log.Info("sending on", "dir", x.Dir)
	for {
		x.setFault("")
		err := x.watch(ctx, opt, log)
		if ctx.Err() != nil {
			return
		}
		x.setFault(err.Error())
		args := []any{"error", err, "again", time.Now().Add(maxBackoff).Format(time.TimeOnly)}
		if help := hintOf(err); help != "" {
			args = append(args, "hint", help)
		}
		log.Error("nothing is sent on", args...)
		sleep(ctx, maxBackoff)
	}
}

// hintOf is hint.Of, but names keys of forward instead of flags.
func hintOf(err error) string {
	if unknown := (*identity.UnknownServerError)(nil); errors.As(err, &unknown) {
		return "compare this key with the one that `fxfer serve` prints there, then make it the pin of forward"
	}
	return hint.Of(err)
}

func (x *forwarding) setFault(text string) {
	x.listing.Lock()
	defer x.listing.Unlock()
	x.fault = text
}

func (x *forwarding) watch(ctx context.Context, opt fxfer.Options, log *slog.Logger) error {
	if IsInside(x.Dir, opt.Home) {
		return fmt.Errorf("the folder of the server's keys and queues is inside of the share: %s", opt.Home)
	}
	if to := x.Then.MoveTo; to != "" {
		if err := CheckMoveTo(x.Dir, to); err != nil {
			return err
		}
	}
	if err := checkOther(opt, x.URL); err != nil {
		return err
	}
	client, err := fxfer.NewClient(opt)
	if err != nil {
		return err
	}
	w := Watcher{
		Queue: x.queue, Dir: x.Dir, URL: x.place(), Settle: x.Settle, Then: x.Then, Log: log,
		Send: SendWith(client, x.Dir, x.URL, fxfer.NewThrottle(x.RateLimit)), urgent: x.urgent,
	}
	if x.Webhook.URL != "" {
		w.Tell = x.Webhook.tell(x.Share, webhookWithin)
	} else if err := x.queue.update((*change).dropNews); err != nil {
		return err
	}
	if x.ConfirmWithin > 0 { // clients go on with a file after the reply: they set its time, or rename it
		w.linger = x.Settle
	}
	return w.Run(ctx)
}

// webhookWithin bounds each call of a webhook.
const webhookWithin = 10 * time.Second

// tell returns the Tell of the watcher of a share, each call of which takes at most so long.
func (h Webhook) tell(share string, within time.Duration) func(context.Context, News) error {
	host, _ := os.Hostname()
	return func(ctx context.Context, n News) error {
		headers := map[string]string{}
		if h.Secret != "" {
			token, err := webhook.Bearer(h.Secret) // each time: whoever replaces it needs no reload
			if err != nil {
				return fmt.Errorf("the webhook's secret: %w", err)
			}
			headers["Authorization"] = token
		}
		body, err := json.Marshal(struct {
			News
			Share string `json:"share"`
			Host  string `json:"host"`
			Text  string `json:"text"`
		}{n, share, host, n.text(share, host)})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return webhook.Post(ctx, h.URL, headers, body)
	}
}

func (n News) text(share, host string) string {
	if n.Event == EventFailed {
		return fmt.Sprintf("share %s on %s: %s cannot be sent on now: %s", share, host, n.Path, n.Error)
	}
	return fmt.Sprintf("share %s on %s: %s is at its destination", share, host, n.Path)
}

// checkOther returns an error if the server that a client takes for the one at a URL has this server's
// own key: what is sent there could be the file itself, which is there then, and may be removed.
func checkOther(opt fxfer.Options, to fxfer.URL) error {
	store, err := identity.OpenStore(opt.Home)
	if err != nil {
		return err
	}
	key, err := store.Key()
	if err != nil {
		return err
	}
	pin := to.Pin
	switch {
	case opt.Pin != "":
		pin, err = identity.ParsePin(opt.Pin)
	case pin == "":
		pin, _, err = store.KnownServer(to.Address())
	}
	if err == nil && pin == identity.PinOfPrivate(key) {
		err = errors.New("the server there has the key of this one: a share is not sent on to its own server")
	}
	return err
}
