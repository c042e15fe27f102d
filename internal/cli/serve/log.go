package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// auditToLog as the name of an audit log means the server's log.
const auditToLog = "log"

// logFlags say how a server writes its logs.
type logFlags struct {
	format string // "text", "json", or auto, which is text on a terminal
	level  slog.Level
	audit  string // file, auditToLog, or "" for none
}

func (l *logFlags) add(flags *pflag.FlagSet) {
	l.format = option.Auto
	option.Add(flags, &l.format, "log-format", "how", option.Auto, "text, json, or auto for text on a terminal", parseLogFormat)
	option.Add(flags, &l.level, "log-level", "level", "info", "debug, info, warn or error", parseLogLevel)
}

// addAudit adds the flag of a server that has something to audit.
func (l *logFlags) addAudit(flags *pflag.FlagSet) {
	option.Add(flags, &l.audit, "audit-log", "file", "none", "write each entry's outcome, as JSON lines; \"log\" is the log", parseAudit)
}

func parseLogFormat(s string) (string, error) {
	if s != option.Auto && s != "text" && s != "json" {
		return "", fmt.Errorf("%q is not text, json or auto", s)
	}
	return s, nil
}

func parseLogLevel(s string) (slog.Level, error) {
	switch s {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q is not debug, info, warn or error", s)
}

func parseAudit(s string) (string, error) {
	switch s {
	case "":
		return "", errors.New("expected a file, log or none")
	case "none":
		return "", nil
	}
	return s, nil
}

// serverLog writes everything that a server reports.
type serverLog struct {
	log   *slog.Logger
	audit *slog.Logger // nil if there is no audit log
	talk  io.Writer    // output for people, nil if everything is JSON
	file  *logFile     // the file of the audit log
}

// open opens the logs. The server's log goes to errs.
func (l *logFlags) open(errs io.Writer, quiet bool) (*serverLog, error) {
	s := &serverLog{talk: errs}
	opt := &slog.HandlerOptions{Level: l.level}
	if quiet {
		opt.Level, s.talk = slog.LevelError, io.Discard
	}
	handler := func(opt *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(errs, forPeople(opt)) }
	if l.format == "json" || l.format == option.Auto && !term.IsTerminal(errs) {
		s.talk = nil
		handler = func(opt *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(errs, forPrograms(opt)) }
	}
	s.log = slog.New(handler(opt))
	switch l.audit {
	case "":
	case auditToLog:
		s.audit = slog.New(handler(nil)) // it does not depend on the level of the server's log
	default:
		s.file = &logFile{path: l.audit}
		if err := s.file.open(); err != nil {
			return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("audit log: %w", err)}
		}
		s.audit = slog.New(slog.NewJSONHandler(s.file, nil))
	}
	return s, nil
}

// forPeople returns options for lines that people read: they lack error=<nil>, which looks like an
// error.
func forPeople(opt *slog.HandlerOptions) *slog.HandlerOptions {
	return replacing(opt, func(a slog.Attr) slog.Attr {
		if a.Key == "error" && a.Value.Any() == nil {
			return slog.Attr{}
		}
		return a
	})
}

// forPrograms returns options for records: a duration is in seconds, like those that have it in their name.
func forPrograms(opt *slog.HandlerOptions) *slog.HandlerOptions {
	return replacing(opt, func(a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.Float64Value(a.Value.Duration().Seconds())
		}
		return a
	})
}

func replacing(opt *slog.HandlerOptions, replace func(slog.Attr) slog.Attr) *slog.HandlerOptions {
	var o slog.HandlerOptions
	if opt != nil {
		o = *opt
	}
	o.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr { return replace(a) }
	return &o
}

// tell reports something, as a line for people or as a record.
func (s *serverLog) tell(line, message string, attrs ...any) {
	if s.talk == nil {
		s.log.Info(message, attrs...)
		return
	}
	s.print(line)
}

// print writes a line for people.
func (s *serverLog) print(line string) {
	if s.talk != nil {
		fmt.Fprintf(s.talk, "fxfer: %s\n", line)
	}
}

// reopen continues the audit log in a new file if the file was renamed.
func (s *serverLog) reopen() {
	if s.file == nil {
		return
	}
	if err := s.file.open(); err != nil {
		s.log.Error("audit log: the server continues with the old file", "error", err)
	}
}

func (s *serverLog) close() {
	if s.file != nil {
		_ = s.file.f.Close()
	}
}

// logFile is a file that each call of Write appends one record to.
type logFile struct {
	path string
	mu   sync.Mutex // guards what follows
	f    *os.File
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f = f
	return nil
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(p)
}
