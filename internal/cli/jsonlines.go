package cli

import (
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// jsonEvery is how often jsonLines reports progress.
const jsonEvery = time.Second

// jsonLines shows a transfer to programs: one object a line, told apart by its member "type".
type jsonLines struct {
	out  io.Writer
	last time.Duration
	held *fxfer.Progress // not yet printed
}

type jsonProgress struct {
	Type        string             `json:"type"`
	Elapsed     float64            `json:"elapsed_seconds"`
	Walking     bool               `json:"walking"`
	Files       int64              `json:"files"`
	FilesDone   int64              `json:"files_done"`
	FilesFailed int64              `json:"files_failed"`
	Bytes       int64              `json:"bytes"`
	BytesDone   int64              `json:"bytes_done"`
	Goodput     float64            `json:"goodput_bits_per_second"`
	Streams     int                `json:"streams"`
	RTT         float64            `json:"rtt_seconds"`
	Limiter     string             `json:"limiter,omitempty"`
	Active      []jsonFileProgress `json:"active"`
}

type jsonFileProgress struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"` // -1 if unknown
	Done  int64  `json:"bytes_done"`
}

type jsonFile struct {
	Type    string        `json:"type"`
	Path    string        `json:"path"`
	Raw     []byte        `json:"path_base64,omitempty"` // if it is no UTF-8
	Kind    string        `json:"kind"`
	Bytes   int64         `json:"bytes"`
	Outcome fxfer.Outcome `json:"outcome"`
	Digest  string        `json:"digest,omitempty"`
	Error   string        `json:"error,omitempty"`
}

type jsonSummary struct {
	Type        string        `json:"type"`
	Server      string        `json:"server"`
	Duration    float64       `json:"duration_seconds"`
	Files       int64         `json:"files"`
	Sent        int64         `json:"files_sent"`
	Same        int64         `json:"files_unchanged"`
	Skipped     int64         `json:"files_not_wanted"`
	Failed      int64         `json:"entries_failed"`
	Removed     int64         `json:"entries_removed"`
	Bytes       int64         `json:"bytes"`
	Written     int64         `json:"bytes_written"`
	Resumed     int64         `json:"bytes_resumed"`
	Resent      int64         `json:"bytes_resent"`
	Goodput     float64       `json:"goodput_bits_per_second"`
	Digest      string        `json:"digest"`
	Snapshot    string        `json:"snapshot,omitempty"`
	Copied      int64         `json:"bytes_copied,omitempty"`
	Failures    []jsonFile    `json:"failures"`
	Warnings    []jsonWarning `json:"warnings"`
	Plan        *jsonPlan     `json:"plan,omitempty"` // of a dry run
	Raw         int64         `json:"bytes_compressed"`
	Coded       int64         `json:"bytes_compressed_to"`
	Streams     int           `json:"streams"`
	Transport   string        `json:"transport"`
	Reason      string        `json:"transport_reason"`
	Connections int           `json:"quic_connections"`
	Congestion  string        `json:"congestion"`
	RTT         float64       `json:"rtt_seconds"`
	Peak        float64       `json:"peak_bits_per_second"`
	BDP         int64         `json:"bdp_bytes"`
	SendBuffer  int64         `json:"send_buffer_bytes"`
	RecvBuffer  int64         `json:"recv_buffer_bytes"`
	Retransmits int64         `json:"retransmitted_segments"`
	Reconnects  int           `json:"reconnects"`
	Limits      []jsonLimit   `json:"limits"`
	Timeline    []jsonMoment  `json:"timeline"`
}

type jsonWarning struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
	Path  string `json:"path"` // of the first
	Text  string `json:"message"`
}

type jsonPlan struct {
	Create int64 `json:"create"`
	Update int64 `json:"update"`
	Set    int64 `json:"metadata"`
	Bytes  int64 `json:"bytes"`
}

type jsonNotice struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type jsonError struct {
	Type     string `json:"type"`
	Kind     string `json:"kind"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exit_code"`
}

func (j *jsonLines) progress(p *fxfer.Progress) {
	j.held = p
	if p.Elapsed-j.last >= jsonEvery {
		j.flush()
	}
}

// flush prints the progress that has been held back.
func (j *jsonLines) flush() {
	p := j.held
	if p == nil {
		return
	}
	j.held, j.last = nil, p.Elapsed
	line := jsonProgress{
		Type: "progress", Elapsed: p.Elapsed.Seconds(), Walking: p.Walking, Files: p.Files, FilesDone: p.FilesDone, FilesFailed: p.FilesFailed,
		Bytes: p.Bytes, BytesDone: p.BytesDone, Goodput: p.Goodput, Streams: p.Streams, RTT: p.RTT.Seconds(), Limiter: p.Limiter, Active: []jsonFileProgress{},
	}
	for _, f := range p.Active {
		line.Active = append(line.Active, jsonFileProgress(f))
	}
	printJSON(j.out, line)
}

func (j *jsonLines) file(r *fxfer.FileResult) { printJSON(j.out, jsonFileOf(r)) }

// notice tells what goes on, such as a lost connection that is tried again: a program that watches must not take it for a hang.
func (j *jsonLines) notice(text string) { printJSON(j.out, jsonNotice{Type: "notice", Message: text}) }

func (j *jsonLines) finish(r *fxfer.Report, err error) {
	j.flush()
	if r != nil {
		line := jsonSummary{
			Type: "summary", Server: r.Server, Duration: r.Duration.Seconds(), Files: r.Files, Sent: r.Sent, Same: r.Same,
			Skipped: r.Skipped, Failed: r.Failed, Removed: r.Removed, Warnings: []jsonWarning{}, Plan: (*jsonPlan)(r.Plan), Raw: r.Raw, Coded: r.Coded,
			Bytes: r.Bytes, Written: r.Written, Resumed: r.Resumed, Resent: r.Resent, Goodput: r.Goodput, Digest: r.Digest, Snapshot: r.Snapshot, Copied: r.Copied,
			Failures: []jsonFile{}, Streams: r.Streams, Transport: string(r.Transport), Reason: r.TransportReason, Connections: r.Connections, Congestion: r.Congestion, RTT: r.RTT.Seconds(), Peak: r.Peak, BDP: r.BDP,
			SendBuffer: r.SendBuffer, RecvBuffer: r.RecvBuffer, Retransmits: r.Retransmits, Reconnects: r.Reconnects,
			Limits: jsonLimits(r.Limits), Timeline: jsonTimeline(r.Timeline),
		}
		for i := range r.Failures {
			line.Failures = append(line.Failures, jsonFileOf(&r.Failures[i]))
		}
		for _, w := range r.NotStored {
			line.Warnings = append(line.Warnings, jsonWarning(w))
		}
		printJSON(j.out, line)
	}
	if err != nil {
		printJSON(j.out, jsonErrorOf(err))
	}
}

func jsonErrorOf(err error) jsonError {
	kind, code := classify(err)
	return jsonError{Type: "error", Kind: kind, Message: err.Error(), Hint: hintOf(err), ExitCode: code}
}

func jsonFileOf(r *fxfer.FileResult) jsonFile {
	f := jsonFile{Type: "file", Path: r.Path, Raw: rawPath(r.Path), Kind: r.Kind, Bytes: r.Bytes, Outcome: r.Outcome, Digest: r.Digest}
	if r.Err != nil {
		f.Error = r.Err.Error()
	}
	return f
}

// rawPath returns the bytes of a path that JSON can't hold, nil of others.
func rawPath(path string) []byte {
	if utf8.ValidString(path) {
		return nil
	}
	return []byte(path)
}

// printJSON prints v, which holds no value that JSON lacks. Nobody can be told that nobody reads it.
func printJSON(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}
