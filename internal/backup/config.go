package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/profile"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/webhook"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Mode is the form of a job's destination.
type Mode string

// The modes.
const (
	Snapshots Mode = "snapshots" // a folder for each run; files that did not change share their space
	Mirror    Mode = "mirror"    // exactly the files of the source
	Replica   Mode = "replica"   // the snapshots of a series at another site; for a Source
)

// Overrun decides what happens to a run at the end of its window.
type Overrun string

// The values of Overrun.
const (
	Continue Overrun = "continue" // the run continues
	Pause    Overrun = "pause"    // the run resumes when the window opens again
	Fail     Overrun = "fail"     // the run fails; the next one resumes
)

// Job is one entry of the file of jobs. A Job never changes after it was read.
type Job struct {
	Name     string
	Schedule *Schedule // nil: the job runs only by hand
	Jitter   time.Duration
	Window   Window
	Overrun  Overrun
	Rate     Timetable
	Priority fxfer.Priority // "" is low as long as that ends within Window, or normal without one
	MaxAge   time.Duration  // the newest good backup has to be younger; 0 is any age

	Source        fxfer.URL // of a server; then Folder is the destination, and there are no Sources
	Sources       []string  // absolute paths; empty if there is a Command or a Source
	Filters       []string  // gitignore rules
	MaxSize       int64     // largest size of a file; 0 is any
	OneFileSystem bool
	Command       string // its output is sent as File
	File          string

	Destination fxfer.URL
	Folder      string // absolute path on this host, if there is a Source
	Mode        Mode
	Privileged  bool           // as in fxfer.Target; for a Source
	AllowFailed int            // how many entries a good snapshot may lack
	Keep        snapshot.Keep  // only for Snapshots
	Zone        *time.Location // for schedule, window, timetable and retention
	Verify      *Schedule      // when the server verifies snapshots; nil is never

	TLS      fxfer.TLS   // as in fxfer.Options
	Compress string      // as in fxfer.Options
	Delta    string      // "auto", "fixed", "chunks" or "none"
	Streams  int         // 0 is automatic
	Profile  string      // name of a profile, "" for none
	Via      []fxfer.URL // as in fxfer.Options

	Retries int           // number of attempts after the first
	Backoff time.Duration // before the first retry; it doubles with each retry
	Pre     []Hook
	Post    []Hook
	Notify  []Notice

	source string // YAML of the job and its defaults; equal text means equal jobs
}

// Hook is a command before or after a run.
type Hook struct {
	Command string
	Timeout time.Duration
	Failure string // for Pre: "fail", "skip" the run or "warn"; for Post: "fail" or "warn"
	When    string // for Post: "always", "success" or "failure"
	Env     []string
}

// Notice says which events are reported to whom.
type Notice struct {
	Webhook string // URL that gets a POST, or
	Command string // or a command that gets the same JSON on its standard input
	Timeout time.Duration
	On      []Event
	Headers map[string]string // of the webhook
}

// Event is something that can be reported.
type Event string

// The events.
const (
	EventSuccess   Event = "success"
	EventFailure   Event = "failure"
	EventPaused    Event = "paused"    // at the end of the window
	EventAlarm     Event = "alarm"     // the newest good backup is older than max-age
	EventRecovered Event = "recovered" // there is a good backup again
)

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

// Load reads a file of jobs. If its content is wrong, the error is config.Faults.
func Load(name string) (*Config, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseConfig(name, text)
}

var errNoJobs = errors.New("there are no jobs: expected \"jobs:\" and a list")

func parseConfig(name string, text []byte) (*Config, error) {
	c := &Config{Path: name}
	found, err := config.Parse(name, text, c.read)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, config.Faults{{Path: name, Line: 1, Err: errNoJobs}}
	}
	return c, nil
}

// defaults are the values of keys that a job does not have.
type defaults struct {
	zone   *time.Location
	notify []Notice
	tls    fxfer.TLS
	source string // the YAML text of the defaults
}

func (c *Config) read(n config.Node) {
	d := defaults{zone: time.Local}
	o := n.Object("the file",
		config.Scalar("time-zone", &d.zone, parseZone),
		config.Inner("notify", func(n config.Node) { d.notify, d.source = notices(n), n.String() }),
		config.Inner("tls", func(n config.Node) { d.tls = readTLS(n) }),
		config.Inner("jobs", func(n config.Node) {
			d.source = d.zone.String() + "\n" + d.source
			c.readJobs(n, &d)
		}))
	if o != nil && !o.Has("jobs") {
		n.Fault("%w", errNoJobs)
	}
}

func (c *Config) readJobs(n config.Node, d *defaults) {
	names, destinations := map[string]bool{}, map[string]string{}
	for _, item := range n.Items() {
		j := readJob(item, d)
		if j.Name != "" && names[j.Name] {
			item.Fault("two jobs have the name %q", j.Name)
		}
		if other := c.holding(j.Folder); other != nil {
			item.Fault("%s is in the destination of %s, or around it: a job that pulls needs a folder of its own",
				j.Folder, cmp.Or(other.Name, "another job"))
		}
		place := j.place()
		if other, taken := destinations[place]; taken && place != "" {
			item.Fault("%s has the destination of %s: each would remove what the other one sends",
				cmp.Or(j.Name, "this job"), cmp.Or(other, "another job"))
		}
		names[j.Name], destinations[place] = true, j.Name
		c.Jobs = append(c.Jobs, j)
	}
	if len(c.Jobs) == 0 {
		n.Fault("%w", errNoJobs)
	}
}

// Pulls reports whether the job gets files from a server into a folder of this host.
func (j *Job) Pulls() bool { return j.Source.Host != "" }

// holding returns the job that pulls into a folder around or in dir, nil if there is none.
func (c *Config) holding(dir string) *Job {
	for _, j := range c.Jobs {
		if dir != "" && j.Folder != "" && j.Folder != dir && (within(dir, j.Folder) || within(j.Folder, dir)) {
			return j
		}
	}
	return nil
}

// within reports whether a clean path is another one or below it.
func within(p, dir string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && filepath.IsLocal(rel)
}

// Target is the destination for people. It ends with a slash.
func (j *Job) Target() string {
	if j.Pulls() {
		return strings.TrimSuffix(j.Folder, "/") + "/"
	}
	return j.Destination.String()
}

// readDestination reads a URL, or the folder of a job that pulls.
func (j *Job) readDestination(n config.Node) {
	if !j.Pulls() {
		if u, ok := config.Value(n, "destination", parseDestination); ok {
			j.Destination = u
		}
	} else if dir, ok := config.Value(n, "destination", parseFolder); ok {
		j.Folder = dir
	}
}

// place returns the destination as a name, "" if there is none. No other job may write to it.
func (j *Job) place() string {
	u := j.Destination
	if j.Folder != "" {
		return j.Folder
	}
	if u.Host == "" {
		return ""
	}
	if j.Command != "" && j.Mode == Mirror {
		u.Path = path.Join(u.Path, j.File)
	}
	return u.Host + ":" + strconv.Itoa(u.Port) + "/" + u.Share + "/" + u.Path
}

// readJob reads a job. It reports all faults, and a faulty value leaves its field as it was.
func readJob(n config.Node, d *defaults) *Job {
	j := &Job{
		Mode: Snapshots, Overrun: Continue, Zone: d.zone, Notify: d.notify, TLS: d.tls,
		Retries: DefaultRetries, Backoff: DefaultBackoff, Compress: "auto", Delta: "auto",
		source: d.source + "\n" + n.String(),
	}
	o := n.Object("a job", j.fields()...)
	if o == nil {
		return j
	}
	if len(o) == n.Len() { // otherwise a key that seems missing may be there, misspelt
		checkMissing(n, o)
	}
	j.checkWhat(o)
	j.checkHow(o)
	return j
}

// fields are the keys of a job. The time zone comes before the times that are in it.
func (j *Job) fields() []config.Field {
	schedule := func(s string) (*Schedule, error) { return ParseSchedule(s, j.Zone) }
	window := func(s string) (Window, error) { return ParseWindow(s, j.Zone) }
	rate := func(s string) (Timetable, error) { return ParseTimetable(s, j.Zone) }
	return []config.Field{
		config.Scalar("name", &j.Name, parseJobName),
		config.Scalar("time-zone", &j.Zone, parseZone),
		config.Scalar("schedule", &j.Schedule, schedule),
		config.Scalar("jitter", &j.Jitter, units.ParseTime),
		config.Scalar("source", &j.Source, parseRemote),
		config.List("sources", &j.Sources, parseSource),
		config.List("filters", &j.Filters, parseRule),
		config.Scalar("max-size", &j.MaxSize, units.ParseSize),
		config.Scalar("one-file-system", &j.OneFileSystem, parseBool),
		config.Scalar("command", &j.Command, parseCommand),
		config.Scalar("file", &j.File, parseFile),
		config.Inner("destination", j.readDestination), // after source
		config.Scalar("mode", &j.Mode, oneOf(Snapshots, Mirror, Replica)),
		config.Inner("keep", func(n config.Node) { j.Keep = readKeep(n) }),
		config.Scalar("allow-failed", &j.AllowFailed, parseAllowed),
		config.Scalar("privileged", &j.Privileged, parseBool),
		config.Scalar("window", &j.Window, window),
		config.Scalar("overrun", &j.Overrun, oneOf(Continue, Pause, Fail)),
		config.Scalar("rate", &j.Rate, rate),
		config.Scalar("priority", &j.Priority, oneOf(fxfer.PriorityLow, fxfer.PriorityNormal, fxfer.PriorityHigh)),
		config.Scalar("retries", &j.Retries, parseNumber),
		config.Scalar("backoff", &j.Backoff, units.ParseTime),
		config.Scalar("max-age", &j.MaxAge, units.ParseTime),
		config.Inner("pre", func(n config.Node) { j.Pre = preHooks(n) }),
		config.Inner("post", func(n config.Node) { j.Post = postHooks(n) }),
		config.Inner("notify", func(n config.Node) { j.Notify = notices(n) }),
		config.Scalar("compress", &j.Compress, oneOf("auto", "zstd", "none")),
		config.Scalar("delta", &j.Delta, oneOf("auto", "fixed", "chunks", "none")),
		config.Scalar("streams", &j.Streams, parseStreams),
		config.Scalar("profile", &j.Profile, profile.ParseName),
		config.List("via", &j.Via, parseVia),
		config.Scalar("verify", &j.Verify, schedule),
		config.Inner("tls", func(n config.Node) { j.TLS = readTLS(n) }),
	}
}

// Absent returns the sources that do not exist, if no hook may make them before the run.
func (j *Job) Absent() (absent []string) {
	for _, s := range j.Sources {
		if _, err := os.Lstat(s); errors.Is(err, fs.ErrNotExist) && len(j.Pre) == 0 {
			absent = append(absent, s)
		}
	}
	return absent
}

// checkMissing reports what every job needs.
func checkMissing(n config.Node, o config.Object) {
	if !o.Has("name") {
		n.Fault("the job has no name")
	}
	if !o.Has("destination") {
		n.Fault("the job has no destination: expected fxfer://host/share/folder")
	}
	switch {
	case !o.Has("sources") && !o.Has("command") && !o.Has("source"):
		n.Fault("the job has nothing to back up: expected sources, source, or command and file")
	case o.Has("command") && !o.Has("file") && !o.Has("sources"):
		o["command"].Key.Fault("file is missing: the name for the output of the command")
	}
}

// checkWhat checks that a job sends one kind of thing, and that its destination suits that.
func (j *Job) checkWhat(o config.Object) {
	switch {
	case o.Has("source") && (o.Has("sources") || o.Has("command")):
		o["source"].Key.Fault("a job has either source, which is a URL, or sources of this host, or a command")
	case o.Has("sources") && o.Has("command"):
		o["command"].Key.Fault("a job has either sources or a command")
	case o.Has("file") && !o.Has("command"):
		o["file"].Key.Fault("file is the name for the output of a command, and there is no command")
	case o.Has("sources") && len(o["sources"].Value.Items()) == 0:
		o["sources"].Key.Fault("the list is empty")
	}
	if j.Mode == Snapshots && j.Destination.Share != "" && j.Destination.Path == "" {
		o["destination"].Key.Fault("snapshots need a folder of their own below the share: %s/NAME", strings.TrimSuffix(j.Destination.String(), "/"))
	}
}

// checkHow rejects keys that contradict others.
func (j *Job) checkHow(o config.Object) {
	reject := func(format string, keys ...string) {
		for _, key := range keys {
			if o.Has(key) {
				o[key].Key.Fault(format, key)
			}
		}
	}
	if j.Command != "" {
		reject("%s is for files, and the output of a command is sent whole or not at all", "allow-failed")
		reject("%s selects files, and the output of a command is sent whole", "filters", "max-size", "one-file-system")
		if j.Overrun == Pause {
			o["overrun"].Key.Fault("the output of a command can't go on the next night: choose continue or fail")
		}
	}
	if !o.Has("window") {
		reject("%s: there is no window to overrun", "overrun")
	}
	if !j.Pulls() {
		reject("%s is for a job with a source: what a server keeps, its share decides", "privileged")
	}
	if j.Mode == Replica {
		reject("%s: a replica has what the snapshots at the source have", "filters", "max-size", "one-file-system", "allow-failed")
		if !j.Pulls() {
			o["mode"].Key.Fault("a replica needs a source: the URL of the folder of snapshots")
		}
	}
	if j.Mode == Mirror {
		reject("%s is for snapshots, and a mirror has none", "allow-failed", "keep", "verify")
	}
}

// readTLS reads the names of the certificate files that a job uses instead of keys.
func readTLS(n config.Node) (t fxfer.TLS) {
	n.Object("tls",
		config.Scalar("ca", &t.CA, func(s string) (string, error) {
			if s == fxfer.SystemCA {
				return s, nil
			}
			return parseSource(s)
		}),
		config.Scalar("cert", &t.Cert, parseSource),
		config.Scalar("key", &t.Key, parseSource))
	if (t.Cert == "") != (t.Key == "") {
		n.Fault("cert and key belong together")
	}
	return t
}

func readKeep(n config.Node) (k snapshot.Keep) {
	var fields []config.Field
	names := snapshot.KeepRules()
	counts := make([]int, len(names))
	for i, name := range names {
		fields = append(fields, config.Scalar(name, &counts[i], parseNumber))
	}
	before := n.Faults()
	n.Object("keep", fields...)
	for i, name := range names {
		k.Set(name, counts[i])
	}
	if n.Faults() == before && k == (snapshot.Keep{}) {
		n.Fault("that would keep nothing: to keep all, leave keep out")
	}
	return k
}

func preHooks(n config.Node) []Hook {
	return hooks(n, Hook{Timeout: DefaultHookTimeout, Failure: "fail"}, func(h *Hook) []config.Field {
		return []config.Field{config.Scalar("on-failure", &h.Failure, oneOf("fail", "skip", "warn"))}
	})
}

func postHooks(n config.Node) []Hook {
	return hooks(n, Hook{Timeout: DefaultHookTimeout, Failure: "warn", When: "always"}, func(h *Hook) []config.Field {
		return []config.Field{
			config.Scalar("on-failure", &h.Failure, oneOf("fail", "warn")),
			config.Scalar("when", &h.When, oneOf("always", "success", "failure")),
		}
	})
}

// hooks reads a list of hooks. Each hook is a command alone or a mapping. It begins as a copy of
// usual. The function more returns the keys that only some hooks have.
func hooks(n config.Node, usual Hook, more func(*Hook) []config.Field) (all []Hook) {
	for _, item := range n.Items() {
		h := usual
		if item.IsMapping() {
			item.Object("a hook", append([]config.Field{
				config.Scalar("command", &h.Command, parseCommand),
				config.Scalar("timeout", &h.Timeout, units.ParseTime),
				config.Inner("env", func(n config.Node) {
					pairs(n, "env", func(name, value string) { h.Env = append(h.Env, name+"="+value) })
				}),
			}, more(&h)...)...)
			if h.Command == "" {
				item.Fault("the hook has no command")
			}
		} else {
			h.Command, _ = item.Text()
		}
		all = append(all, h)
	}
	return all
}

// pairs calls add for each name and its value.
func pairs(n config.Node, what string, add func(name, value string)) {
	for _, e := range n.Entries(what + " as names and values") {
		if text, ok := e.Value.Text(); ok {
			add(e.Name, text)
		}
	}
}

func notices(n config.Node) (all []Notice) {
	for _, item := range n.Items() {
		x := Notice{Timeout: defaultNoticeTime, On: []Event{EventFailure, EventAlarm, EventRecovered}}
		o := item.Object("a notification",
			config.Scalar("webhook", &x.Webhook, webhook.Parse),
			config.Scalar("command", &x.Command, parseCommand),
			config.List("on", &x.On, oneOf(EventSuccess, EventFailure, EventPaused, EventAlarm, EventRecovered)),
			config.Scalar("timeout", &x.Timeout, units.ParseTime),
			config.Inner("headers", func(n config.Node) {
				x.Headers = map[string]string{}
				pairs(n, "headers", func(name, value string) { x.Headers[name] = value })
			}))
		if o != nil && o.Has("webhook") == o.Has("command") {
			item.Fault("a notification has either a webhook or a command")
		}
		all = append(all, x)
	}
	return all
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

// jobNameForm matches names that every system accepts as file names and arguments.
var jobNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

func parseJobName(s string) (string, error) {
	if !jobNameForm.MatchString(s) {
		return "", fmt.Errorf("%q: expected letters, digits, - and _, at most 63", s)
	}
	return s, nil
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

func parseVia(s string) (fxfer.URL, error) {
	u, err := fxfer.ParseVia(s)
	if err == nil && u.Token != "" {
		err = errors.New("an invitation works once: use it for `fxfer ls --via`, then leave it out")
	}
	return u, err
}

// parseFolder reads the destination of a job that pulls.
func parseFolder(s string) (string, error) {
	if !filepath.IsAbs(s) {
		return "", fmt.Errorf("%q is not the absolute path of a folder on this host: source is a URL, so the job gets files", s)
	}
	return filepath.Clean(s), nil
}

func parseRemote(s string) (fxfer.URL, error) {
	u, err := fxfer.ParseURL(s)
	switch {
	case err != nil:
		return u, err
	case u.Share == "":
		return u, fmt.Errorf("%s names no share: expected fxfer://host/share", u.Redacted())
	case u.Token != "":
		return u, errors.New("an invitation works once: use it for `fxfer ls`, then leave it out")
	}
	return u, nil
}

func parseDestination(s string) (fxfer.URL, error) {
	u, err := fxfer.ParseURL(s)
	switch {
	case err != nil:
		return u, err
	case u.Share == "":
		return u, fmt.Errorf("%s names no share: expected fxfer://host/share/folder", u.Redacted())
	case u.Token != "":
		return u, errors.New("an invitation works once: use it for `fxfer ls`, then leave it out")
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
		err = fmt.Errorf("%d entries are too many: expected at most %d", n, fxfer.MaxAllowFailed)
	}
	return n, err
}
