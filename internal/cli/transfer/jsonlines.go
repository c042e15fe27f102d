package transfer

import (
	"io"
	"time"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/verdict"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// jsonEvery is how often jsonLines reports progress.
const jsonEvery = time.Second

// jsonLines shows a transfer to programs: one object per line. The member "type" says what it is.
type jsonLines struct {
	out  io.Writer
	last time.Duration
	held *fxfer.Progress // not yet printed
}

// JSONProgress is the line about progress.
type JSONProgress struct {
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
	Raw     []byte        `json:"path_base64,omitempty"` // if the path is not UTF-8
	Kind    string        `json:"kind"`
	Bytes   int64         `json:"bytes"`
	Outcome fxfer.Outcome `json:"outcome"`
	Digest  string        `json:"digest,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// JSONSummary is the last line of a transfer.
type JSONSummary struct {
	Type        string           `json:"type"`
	Server      string           `json:"server"`
	Duration    float64          `json:"duration_seconds"`
	Files       int64            `json:"files"`
	Sent        int64            `json:"files_sent"`
	Same        int64            `json:"files_unchanged"`
	Skipped     int64            `json:"files_not_wanted"`
	Links       int64            `json:"links_made,omitempty"`
	Failed      int64            `json:"entries_failed"`
	Removed     int64            `json:"entries_removed"`
	NotPruned   bool             `json:"delete_skipped,omitempty"` // because entries failed
	Bytes       int64            `json:"bytes"`
	Written     int64            `json:"bytes_written"`
	Resumed     int64            `json:"bytes_resumed"`
	Resent      int64            `json:"bytes_resent"`
	Goodput     float64          `json:"goodput_bits_per_second"`
	Digest      string           `json:"digest"`
	Snapshot    string           `json:"snapshot,omitempty"`
	Copied      int64            `json:"bytes_copied,omitempty"`
	Healed      int64            `json:"files_healed,omitempty"`
	Failures    []jsonFile       `json:"failures"`
	Warnings    []jsonWarning    `json:"warnings"`
	Plan        *jsonPlan        `json:"plan,omitempty"` // of a dry run
	Raw         int64            `json:"bytes_compressed"`
	Coded       int64            `json:"bytes_compressed_to"`
	Streams     int              `json:"streams"`
	Transport   string           `json:"transport"`
	Reason      string           `json:"transport_reason"`
	Connections int              `json:"quic_connections"`
	Congestion  string           `json:"congestion"`
	RTT         float64          `json:"rtt_seconds"`
	Peak        float64          `json:"peak_bits_per_second"`
	BDP         int64            `json:"bdp_bytes"`
	SendBuffer  int64            `json:"send_buffer_bytes"`
	RecvBuffer  int64            `json:"recv_buffer_bytes"`
	Retransmits int64            `json:"retransmitted_segments"`
	Reconnects  int              `json:"reconnects"`
	Sharing     *jsonSharing     `json:"sharing,omitempty"` // if the sending end reported it
	Changes     []jsonChange     `json:"priority_changes,omitempty"`
	Limits      []verdict.JSON   `json:"limits"`
	Timeline    []verdict.Moment `json:"timeline"`
}

type jsonSharing struct {
	Priority   string  `json:"priority"`
	Shared     float64 `json:"shared_seconds"`
	Yielded    float64 `json:"yielded_seconds"`
	Queue      float64 `json:"added_delay_median_seconds"`
	QueueMost  float64 `json:"added_delay_largest_seconds"`
	LostOwn    int64   `json:"lost_to_own_queue_segments"`
	LostOthers int64   `json:"lost_to_others_queue_segments"`
	LostLine   int64   `json:"lost_to_line_segments"`
	Spurious   int64   `json:"sent_in_vain_segments"`
}

func jsonSharingOf(s *fxfer.Sharing) *jsonSharing {
	if s.Priority == "" {
		return nil
	}
	return &jsonSharing{
		Priority: string(s.Priority), Shared: s.Shared.Seconds(), Yielded: s.Yielded.Seconds(),
		Queue: s.Queue.Seconds(), QueueMost: s.QueueMost.Seconds(),
		LostOwn: s.LostOwn, LostOthers: s.LostOthers, LostLine: s.LostLine, Spurious: s.Spurious,
	}
}

// jsonChange is a change of priority for the sake of a deadline.
type jsonChange struct {
	At       time.Time `json:"at"`
	Priority string    `json:"priority"`
	Left     int64     `json:"bytes_left"`
	Rate     float64   `json:"forecast_bits_per_second"`
	Needs    float64   `json:"forecast_seconds"`
	Deadline time.Time `json:"deadline"`
	Message  string    `json:"message"`
}

type jsonWarning struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
	Path  string `json:"path"` // of the first such entry
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

func (j *jsonLines) progress(p *fxfer.Progress) {
	j.held = p
	if p.Elapsed-j.last >= jsonEvery {
		j.flush()
	}
}

// flush prints the progress that is held back.
func (j *jsonLines) flush() {
	p := j.held
	if p == nil {
		return
	}
	j.held, j.last = nil, p.Elapsed
	line := JSONProgress{
		Type: "progress", Elapsed: p.Elapsed.Seconds(), Walking: p.Walking, Files: p.Files, FilesDone: p.FilesDone, FilesFailed: p.FilesFailed,
		Bytes: p.Bytes, BytesDone: p.BytesDone, Goodput: p.Goodput, Streams: p.Streams, RTT: p.RTT.Seconds(), Limiter: p.Limiter, Active: []jsonFileProgress{},
	}
	for _, f := range p.Active {
		line.Active = append(line.Active, jsonFileProgress(f))
	}
	term.JSON(j.out, line)
}

func (j *jsonLines) file(r *fxfer.FileResult) { term.JSON(j.out, jsonFileOf(r)) }

// notice reports an event, such as a lost connection and its retry. Without it, a program that
// watches would take the pause for a hang.
func (j *jsonLines) notice(text string) { term.JSON(j.out, jsonNotice{Type: "notice", Message: text}) }

// finish prints the summary. The line about an error is the last of every command, so it is not
// printed here.
func (j *jsonLines) finish(r *fxfer.Report, _ error) {
	j.flush()
	if r != nil {
		line := JSONSummary{
			Type: "summary", Server: r.Server, Duration: r.Duration.Seconds(), Files: r.Files, Sent: r.Sent, Same: r.Same,
			Skipped: r.Skipped, Links: r.Links, Failed: r.Failed, Removed: r.Removed, NotPruned: r.NotPruned, Warnings: []jsonWarning{}, Plan: (*jsonPlan)(r.Plan), Raw: r.Raw, Coded: r.Coded,
			Bytes: r.Bytes, Written: r.Written, Resumed: r.Resumed, Resent: r.Resent, Goodput: r.Goodput, Digest: r.Digest, Snapshot: r.Snapshot, Copied: r.Copied, Healed: r.Healed,
			Failures: []jsonFile{}, Streams: r.Streams, Transport: string(r.Transport), Reason: r.TransportReason, Connections: r.Connections, Congestion: r.Congestion, RTT: r.RTT.Seconds(), Peak: r.Peak, BDP: r.BDP,
			SendBuffer: r.SendBuffer, RecvBuffer: r.RecvBuffer, Retransmits: r.Retransmits, Reconnects: r.Reconnects,
			Sharing: jsonSharingOf(&r.Sharing),
			Limits:  verdict.JSONOf(r.Limits), Timeline: verdict.Timeline(r.Timeline),
		}
		for _, c := range r.Changes {
			line.Changes = append(line.Changes, jsonChange{
				At: c.At, Priority: string(c.Priority), Left: c.Left, Rate: c.Rate, Needs: c.Needs.Seconds(), Deadline: c.Deadline, Message: c.String(),
			})
		}
		for i := range r.Failures {
			line.Failures = append(line.Failures, jsonFileOf(&r.Failures[i]))
		}
		for _, w := range r.NotStored {
			line.Warnings = append(line.Warnings, jsonWarning(w))
		}
		term.JSON(j.out, line)
	}
}

func jsonFileOf(r *fxfer.FileResult) jsonFile {
	f := jsonFile{Type: "file", Path: r.Path, Raw: term.RawPath(r.Path), Kind: r.Kind, Bytes: r.Bytes, Outcome: r.Outcome, Digest: r.Digest}
	if r.Err != nil {
		f.Error = r.Err.Error()
	}
	return f
}
