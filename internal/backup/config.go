package backup

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Mode is what a job makes of its destination.
type Mode string

// The modes.
const (
	Snapshots Mode = "snapshots" // a folder for each run, which shares what has not changed with the one before
	Mirror    Mode = "mirror"    // the same as the source, and nothing else
)

// Overrun is what becomes of a run at the end of its window.
type Overrun string

// The rules for it.
const (
	Continue Overrun = "continue" // it goes on
	Pause    Overrun = "pause"    // it goes on where it stopped when the window opens again
	Fail     Overrun = "fail"     // it has failed; the next one goes on where it stopped
)

// Job is one entry of the file of jobs. It is not changed once it is read.
type Job struct {
	Name     string
	Schedule *Schedule // nil: only by hand
	Jitter   time.Duration
	Window   Window
	Overrun  Overrun
	Rate     Timetable
	MaxAge   time.Duration // of the newest good backup; 0 is any

	Sources       []string // absolute paths; none if there is a Command
	Filters       []string // rules of gitignore
	MaxSize       int64    // of a file; 0 is any
	OneFileSystem bool
	Command       string // whose output is sent as File
	File          string

	Destination fxfer.URL
	Mode        Mode
	AllowFailed int            // entries, without which a snapshot counts as good
	Keep        snapshot.Keep  // of Snapshots
	Zone        *time.Location // of schedule, window, timetable and retention
	Verify      *Schedule      // when snapshots are read again at the server; nil is never

	TLS      fxfer.TLS // as in fxfer.Options
	Compress string    // as in fxfer.Options
	Delta    string    // "auto", "fixed", "chunks" or "none"
	Streams  int       // 0 is what the path needs

	Retries int           // after the first attempt
	Backoff time.Duration // before the first retry; doubled with each
	Pre     []Hook
	Post    []Hook
	Notify  []Notice

	source string // all text that it was read from: of the same, the same job is made
}

// Hook is a command before or after a run.
type Hook struct {
	Command string
	Timeout time.Duration
	Failure string // of Pre: "fail", "skip" the run or "warn"; of Post: "fail" or "warn"
	When    string // of Post: "always", "success" or "failure"
	Env     []string
}

// Notice is who is told of what.
type Notice struct {
	Webhook string // URL that gets a POST, or
	Command string // that gets the same JSON on its standard input
	Timeout time.Duration
	On      []Event
	Headers map[string]string // of the webhook
}

// Event is what can be told of.
type Event string

// The events.
const (
	EventSuccess   Event = "success"
	EventFailure   Event = "failure"
	EventPaused    Event = "paused"    // at the end of the window
	EventAlarm     Event = "alarm"     // the newest good backup is older than max-age
	EventRecovered Event = "recovered" // no longer
)

var events = []string{string(EventSuccess), string(EventFailure), string(EventPaused), string(EventAlarm), string(EventRecovered)}

// Defaults of a job.
const (
	DefaultRetries     = 5
	DefaultBackoff     = time.Minute
	DefaultHookTimeout = 10 * time.Minute
	defaultNoticeTime  = 30 * time.Second
)

// Config is a file of jobs.
type Config struct {
	Path string
	Jobs []*Job
}

// Job returns the job called name, nil if there is none.
func (c *Config) Job(name string) *Job {
	for _, j := range c.Jobs {
		if j.Name == name {
			return j
		}
	}
	return nil
}

// Problem is what is wrong with a line of a file of jobs.
type Problem struct {
	Path string
	Line int
	Text string
}

func (p *Problem) Error() string { return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text) }

// Problems are all that is wrong with a file of jobs, at least one, by line.
type Problems []*Problem

func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	return fmt.Sprintf("%v (and %d more: `fxfer backup check` lists all)", p[0], len(p)-1)
}

// Load reads a file of jobs. What is wrong with its content is told by Problems.
func Load(name string) (*Config, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseConfig(name, text)
}

func parseConfig(name string, text []byte) (*Config, error) {
	file, err := parser.ParseBytes(text, 0)
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax) && syntax.GetToken() != nil:
		return nil, Problems{{name, syntax.GetToken().Position.Line, syntax.GetMessage()}}
	case err != nil:
		return nil, Problems{{name, 1, err.Error()}}
	}
	r := &reader{path: name}
	c := &Config{Path: name}
	var body ast.Node
	for _, document := range file.Docs {
		switch {
		case document.Body == nil:
		case body != nil:
			r.fault(document.Body, "a second document")
		default:
			body = document.Body
		}
	}
	if body == nil {
		return nil, Problems{{name, 1, "there are no jobs: expected \"jobs:\" and a list"}}
	}
	r.config(c, body)
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b *Problem) int { return a.Line - b.Line })
		return nil, r.problems
	}
	return c, nil
}

// reader reads YAML and collects what is wrong with it.
type reader struct {
	path     string
	problems Problems
}

func (r *reader) fault(n ast.Node, format string, args ...any) {
	r.problems = append(r.problems, &Problem{r.path, n.GetToken().Position.Line, fmt.Sprintf(format, args...)})
}

// entry is a key of a mapping with its value.
type entry struct {
	key   ast.Node
	value ast.Node
}

// mapping returns the entries of a mapping. Keys that are not known are refused.
func (r *reader) mapping(n ast.Node, what string, known ...string) map[string]entry {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.fault(n, "expected %s: some of %s", what, strings.Join(known, ", "))
		return nil
	}
	entries := map[string]entry{}
	for it := m.MapRange(); it.Next(); {
		name := it.Key().GetToken().Value
		switch {
		case !slices.Contains(known, name):
			r.fault(it.Key(), "unknown key %q of %s: expected one of %s", name, what, strings.Join(known, ", "))
		case entries[name].key != nil:
			r.fault(it.Key(), "%q stands here twice", name)
		default:
			entries[name] = entry{it.Key(), it.Value()}
		}
	}
	return entries
}

// list returns the items of a list, or a single one.
func (r *reader) list(n ast.Node) []ast.Node {
	if s, ok := n.(*ast.SequenceNode); ok {
		return s.Values
	}
	return []ast.Node{n}
}

func (r *reader) text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	r.fault(n, "expected one value")
	return "", false
}

// read gives the value of a key, if it is there, to parse.
func read[T any](r *reader, entries map[string]entry, key string, to *T, parse func(string) (T, error)) {
	e, ok := entries[key]
	if !ok {
		return
	}
	if s, ok := r.text(e.value); ok {
		v, err := parse(s)
		if err != nil {
			r.fault(e.value, "%s: %v", key, err)
			return
		}
		*to = v
	}
}

// readList does so with each item of a list.
func readList[T any](r *reader, entries map[string]entry, key string, to *[]T, parse func(string) (T, error)) {
	e, ok := entries[key]
	if !ok {
		return
	}
	*to = nil
	for _, item := range r.list(e.value) {
		if s, ok := r.text(item); ok {
			v, err := parse(s)
			if err != nil {
				r.fault(item, "%s: %v", key, err)
				continue
			}
			*to = append(*to, v)
		}
	}
}

func (r *reader) config(c *Config, n ast.Node) {
	top := r.mapping(n, "the file", "time-zone", "notify", "jobs", "tls")
	if top == nil {
		return
	}
	zone := time.Local
	read(r, top, "time-zone", &zone, parseZone)
	var notify []Notice
	shared := zone.String() + "\n"
	if e, ok := top["notify"]; ok {
		notify = r.notices(e.value)
		shared += e.value.String()
	}
	var tls fxfer.TLS
	if e, ok := top["tls"]; ok {
		tls = r.tls(e.value)
	}
	e, ok := top["jobs"]
	if !ok {
		r.fault(n, "there are no jobs: expected \"jobs:\" and a list")
		return
	}
	names, destinations := map[string]bool{}, map[string]string{}
	for _, item := range r.list(e.value) {
		j := r.job(item, zone, notify, tls)
		if j == nil {
			continue
		}
		if names[j.Name] {
			r.fault(item, "two jobs have the name %q", j.Name)
		}
		place := j.place()
		if other, taken := destinations[place]; taken {
			r.fault(item, "%s has the destination of %s: each would remove what the other one sends", j.Name, other)
		}
		names[j.Name], destinations[place] = true, j.Name
		j.source = shared + "\n" + item.String()
		c.Jobs = append(c.Jobs, j)
	}
	if len(c.Jobs) == 0 && len(r.problems) == 0 {
		r.fault(e.key, "there are no jobs: expected a list")
	}
}

// place is what no other job may write to.
func (j *Job) place() string {
	u := j.Destination
	if j.Command != "" && j.Mode == Mirror {
		u.Path = path.Join(u.Path, j.File)
	}
	return u.Host + ":" + strconv.Itoa(u.Port) + "/" + u.Share + "/" + u.Path
}

var jobKeys = []string{
	"name", "schedule", "time-zone", "jitter", "sources", "filters", "max-size", "one-file-system", "command", "file", "destination", "mode", "keep",
	"allow-failed", "window", "overrun", "rate", "retries", "backoff", "max-age", "pre", "post", "notify", "compress", "delta", "streams", "verify", "tls",
}

func (r *reader) job(n ast.Node, zone *time.Location, notify []Notice, tls fxfer.TLS) *Job {
	e := r.mapping(n, "a job", jobKeys...)
	if e == nil {
		return nil
	}
	before := len(r.problems)
	j := &Job{Mode: Snapshots, Overrun: Continue, Zone: zone, Notify: notify, TLS: tls, Retries: DefaultRetries, Backoff: DefaultBackoff, Compress: "auto", Delta: "auto"}
	read(r, e, "time-zone", &j.Zone, parseZone)
	schedule := func(s string) (*Schedule, error) { return ParseSchedule(s, j.Zone) }
	read(r, e, "name", &j.Name, parseJobName)
	read(r, e, "schedule", &j.Schedule, schedule)
	read(r, e, "verify", &j.Verify, schedule)
	read(r, e, "jitter", &j.Jitter, parseSpanOfTime)
	read(r, e, "window", &j.Window, func(s string) (Window, error) { return ParseWindow(s, j.Zone) })
	read(r, e, "overrun", &j.Overrun, oneOf(Continue, Pause, Fail))
	read(r, e, "rate", &j.Rate, func(s string) (Timetable, error) { return ParseTimetable(s, j.Zone) })
	read(r, e, "max-age", &j.MaxAge, parseSpanOfTime)
	readList(r, e, "sources", &j.Sources, parseSource)
	readList(r, e, "filters", &j.Filters, parseRule)
	read(r, e, "max-size", &j.MaxSize, units.ParseSize)
	read(r, e, "one-file-system", &j.OneFileSystem, parseBool)
	read(r, e, "command", &j.Command, parseCommand)
	read(r, e, "file", &j.File, parseFile)
	read(r, e, "destination", &j.Destination, parseDestination)
	read(r, e, "mode", &j.Mode, oneOf(Snapshots, Mirror))
	read(r, e, "allow-failed", &j.AllowFailed, parseAllowed)
	read(r, e, "compress", &j.Compress, oneOf("auto", "zstd", "none"))
	read(r, e, "delta", &j.Delta, oneOf("auto", "fixed", "chunks", "none"))
	read(r, e, "streams", &j.Streams, parseStreams)
	read(r, e, "retries", &j.Retries, parseNumber)
	read(r, e, "backoff", &j.Backoff, parseSpanOfTime)
	if x, ok := e["tls"]; ok {
		j.TLS = r.tls(x.value)
	}
	if k, ok := e["keep"]; ok {
		j.Keep = r.keep(k.value)
	}
	if h, ok := e["pre"]; ok {
		j.Pre = r.hooks(h.value, Hook{Failure: "fail"}, []string{"command", "timeout", "env", "on-failure"}, "fail", "skip", "warn")
	}
	if h, ok := e["post"]; ok {
		j.Post = r.hooks(h.value, Hook{Failure: "warn", When: "always"}, []string{"command", "timeout", "env", "on-failure", "when"}, "fail", "warn")
	}
	if x, ok := e["notify"]; ok {
		j.Notify = r.notices(x.value)
	}
	if len(r.problems) == before {
		r.together(n, j, e)
	}
	if len(r.problems) > before {
		return nil
	}
	return j
}

// together checks what only makes sense with something else.
func (r *reader) together(n ast.Node, j *Job, e map[string]entry) {
	has := func(key string) bool { return e[key].key != nil }
	at := func(key string) ast.Node { return e[key].key }
	if !has("name") {
		r.fault(n, "the job has no name")
	}
	if !has("destination") {
		r.fault(n, "the job has no destination: expected fxfer://host/share/folder")
	}
	switch {
	case !has("sources") && !has("command"):
		r.fault(n, "the job sends nothing: expected sources, or command and file")
	case has("sources") && has("command"):
		r.fault(at("command"), "a job has either sources or a command")
	case has("command") && !has("file"):
		r.fault(at("command"), "file is missing: what the output of the command is to be called")
	case has("file") && !has("command"):
		r.fault(at("file"), "file is what the output of a command is called, and there is no command")
	case has("sources") && len(j.Sources) == 0:
		r.fault(at("sources"), "the list is empty")
	}
	if j.Command != "" {
		if has("allow-failed") {
			r.fault(at("allow-failed"), "the output of a command is sent whole, or not at all")
		}
		for _, key := range []string{"filters", "max-size", "one-file-system"} {
			if has(key) {
				r.fault(at(key), "%s selects files, and the output of a command is sent whole", key)
			}
		}
		if j.Overrun == Pause {
			r.fault(at("overrun"), "the output of a command can't go on the next night: choose continue or fail")
		}
	}
	if has("overrun") && !has("window") {
		r.fault(at("overrun"), "there is no window to overrun")
	}
	if j.Mode == Mirror {
		for _, key := range []string{"allow-failed", "keep", "verify"} {
			if has(key) {
				r.fault(at(key), "%s is for snapshots, and a mirror has none", key)
			}
		}
	}
	if j.Mode == Snapshots && has("destination") && j.Destination.Path == "" {
		r.fault(at("destination"), "snapshots need a folder of their own below the share: %s/NAME", strings.TrimSuffix(j.Destination.String(), "/"))
	}
}

// tls reads the files of certificates that take the place of keys.
func (r *reader) tls(n ast.Node) (t fxfer.TLS) {
	e := r.mapping(n, "tls", "ca", "cert", "key")
	read(r, e, "ca", &t.CA, func(s string) (string, error) {
		if s == fxfer.SystemCA {
			return s, nil
		}
		return parseSource(s)
	})
	read(r, e, "cert", &t.Cert, parseSource)
	read(r, e, "key", &t.Key, parseSource)
	if (t.Cert == "") != (t.Key == "") {
		r.fault(n, "cert and key belong together")
	}
	return t
}

func (r *reader) keep(n ast.Node) (k snapshot.Keep) {
	entries := r.mapping(n, "keep", snapshot.Names()...)
	for _, name := range snapshot.Names() {
		var count int
		read(r, entries, name, &count, parseNumber)
		k.Set(name, count)
	}
	if entries != nil && k == (snapshot.Keep{}) {
		r.fault(n, "that would keep nothing: to keep all, leave keep out")
	}
	return k
}

func (r *reader) hooks(n ast.Node, defaults Hook, keys []string, failures ...string) (hooks []Hook) {
	for _, item := range r.list(n) {
		h := defaults
		h.Timeout = DefaultHookTimeout
		if _, ok := item.(ast.MapNode); !ok {
			if s, ok := r.text(item); ok {
				h.Command = s
				hooks = append(hooks, h)
			}
			continue
		}
		e := r.mapping(item, "a hook", keys...)
		read(r, e, "command", &h.Command, parseCommand)
		read(r, e, "timeout", &h.Timeout, parseSpanOfTime)
		read(r, e, "on-failure", &h.Failure, oneOf(failures...))
		read(r, e, "when", &h.When, oneOf("always", "success", "failure"))
		if x, ok := e["env"]; ok {
			h.Env = r.pairs(x.value, "env")
		}
		if h.Command == "" {
			r.fault(item, "the hook has no command")
		}
		hooks = append(hooks, h)
	}
	return hooks
}

// pairs returns the entries of a mapping of any keys as KEY=VALUE.
func (r *reader) pairs(n ast.Node, what string) (pairs []string) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.fault(n, "expected %s as names and values", what)
		return nil
	}
	for it := m.MapRange(); it.Next(); {
		if s, ok := r.text(it.Value()); ok {
			pairs = append(pairs, it.Key().GetToken().Value+"="+s)
		}
	}
	return pairs
}

func (r *reader) notices(n ast.Node) (notices []Notice) {
	for _, item := range r.list(n) {
		e := r.mapping(item, "a notification", "webhook", "command", "on", "timeout", "headers")
		x := Notice{Timeout: defaultNoticeTime, On: []Event{EventFailure, EventAlarm, EventRecovered}}
		read(r, e, "webhook", &x.Webhook, parseWebhook)
		read(r, e, "command", &x.Command, parseCommand)
		read(r, e, "timeout", &x.Timeout, parseSpanOfTime)
		readList(r, e, "on", &x.On, func(s string) (Event, error) {
			name, err := oneOf(events...)(s)
			return Event(name), err
		})
		if h, ok := e["headers"]; ok {
			x.Headers = map[string]string{}
			for _, pair := range r.pairs(h.value, "headers") {
				name, value, _ := strings.Cut(pair, "=")
				x.Headers[name] = value
			}
		}
		if _, hook := e["webhook"]; e != nil && hook == (e["command"].key != nil) {
			r.fault(item, "a notification has either a webhook or a command")
		}
		notices = append(notices, x)
	}
	return notices
}

func oneOf[T ~string](values ...T) func(string) (T, error) {
	return func(s string) (T, error) {
		if slices.Contains(values, T(s)) {
			return T(s), nil
		}
		var names []string
		for _, v := range values {
			names = append(names, string(v))
		}
		return "", fmt.Errorf("%q is not one of %s", s, strings.Join(names, ", "))
	}
}

func parseZone(s string) (*time.Location, error) {
	loc, err := time.LoadLocation(s)
	if err != nil || s == "" {
		return nil, fmt.Errorf("%q is not a time zone such as Europe/Berlin, UTC or Local", s)
	}
	return loc, nil
}

// jobNameForm is fit for a file's name on every system, and for an argument.
var jobNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

func parseJobName(s string) (string, error) {
	if !jobNameForm.MatchString(s) {
		return "", fmt.Errorf("%q: expected letters, digits, - and _, at most 63", s)
	}
	return s, nil
}

// parseSpanOfTime reads a duration, which may have days and weeks: 7d, 26h.
func parseSpanOfTime(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		if days, err := strconv.ParseUint(n, 10, 16); err == nil {
			return time.Duration(days) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time such as 30s, 10m, 26h or 7d", s)
	}
	return d, nil
}

func parseSource(s string) (string, error) {
	if !filepath.IsAbs(s) {
		return "", fmt.Errorf("%q is not an absolute path: a job may be started anywhere", s)
	}
	return s, nil
}

func parseRule(s string) (string, error) {
	_, err := filter.New(filter.Options{Rules: []string{s}})
	return s, err
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func parseCommand(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("the command is empty")
	}
	return s, nil
}

func parseFile(s string) (string, error) {
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "\x00/\\") {
		return "", fmt.Errorf("%q is not the name of a file such as shop.sql", s)
	}
	return s, nil
}

func parseDestination(s string) (fxfer.URL, error) {
	u, err := fxfer.ParseURL(s)
	switch {
	case err != nil:
		return u, err
	case u.Share == "":
		return u, fmt.Errorf("%s names no share: expected fxfer://host/share/folder", u.Redacted())
	case u.Token != "":
		return u, errors.New("an invitation is good once: use it for `fxfer ls`, then leave it out")
	}
	u.TrailingSlash = true
	return u, nil
}

func parseStreams(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n < 1 || n > 64 {
		return 0, fmt.Errorf("%q is not a number of streams from 1 to 64", s)
	}
	return int(n), nil
}

func parseNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 20)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return int(n), nil
}

func parseAllowed(s string) (int, error) {
	n, err := parseNumber(s)
	if err == nil && n > fxfer.MaxAllowFailed {
		err = fmt.Errorf("%d entries are more than can be allowed, %d", n, fxfer.MaxAllowFailed)
	}
	return n, err
}

func parseWebhook(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("expected a URL such as https://example.org/hook")
	}
	return s, nil
}
