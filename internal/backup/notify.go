package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"
)

// message is the JSON that webhooks and commands get.
type message struct {
	Event    Event     `json:"event"`
	Job      string    `json:"job"`
	Host     string    `json:"host"`
	At       time.Time `json:"at"`
	Text     string    `json:"text"`
	LastGood time.Time `json:"last_good,omitzero"`
	Run      *Record   `json:"run,omitempty"`
}

// noticeTries is how often a notification is tried. It is limited so that a receiver that is down
// does not hold up backups.
const noticeTries = 3

// tell sends an event to all receivers that subscribed to it. The event is about the run rec, or
// else the note describes it. Failures are logged.
func (r *Runner) tell(ctx context.Context, j *Job, event Event, rec *Record, note string) {
	if !slices.ContainsFunc(j.Notify, func(n Notice) bool { return slices.Contains(n.On, event) }) {
		return
	}
	host, _ := os.Hostname()
	m := message{Event: event, Job: j.Name, Host: host, At: r.Clock.Now(), Run: rec}
	st, err := r.Store.State(j.Name)
	if err == nil {
		m.LastGood = st.LastGood
	}
	m.Text = m.text(j)
	if note != "" {
		m.Text = m.noteOf(note)
	}
	body, err := json.Marshal(m)
	if err != nil {
		r.Log.Error("notification", "job", j.Name, "error", err)
		return
	}
	ctx = context.WithoutCancel(ctx) // notifications are sent even while the process ends
	for _, n := range j.Notify {
		if !slices.Contains(n.On, event) {
			continue
		}
		for try := 1; ; try++ {
			err := n.send(ctx, event, j.Name, m.Text, body)
			if err == nil {
				break
			}
			r.Log.Warn("notification failed", "job", j.Name, "event", event, "try", try, "error", err)
			if try == noticeTries {
				break
			}
			r.Clock.Sleep(ctx, time.Second<<try)
		}
	}
}

func (m *message) text(j *Job) string {
	switch {
	case m.Event == EventAlarm && m.LastGood.IsZero():
		return fmt.Sprintf("backup %s on %s: there is no good backup yet, and max-age is %v", m.Job, m.Host, j.MaxAge)
	case m.Event == EventAlarm:
		return fmt.Sprintf("backup %s on %s: the newest good backup is of %s, older than %v", m.Job, m.Host, m.LastGood.In(j.Zone).Format("2006-01-02 15:04"), j.MaxAge)
	case m.Run != nil && m.Run.Error != "":
		return fmt.Sprintf("backup %s on %s: %s: %s", m.Job, m.Host, m.Run.Outcome, m.Run.Error)
	case m.Run != nil && m.Run.Failures > 0:
		return fmt.Sprintf("backup %s on %s: %s, without %s", m.Job, m.Host, m.Event, m.Run.Lacking())
	case m.Run != nil && m.Run.Healed > 0:
		return fmt.Sprintf("backup %s on %s: %s, %s", m.Job, m.Host, m.Event, m.Run.Healing())
	}
	return fmt.Sprintf("backup %s on %s: %s", m.Job, m.Host, m.Event)
}

func (n *Notice) send(ctx context.Context, event Event, job, text string, body []byte) error {
	if n.Command != "" {
		env := []string{"FXFER_EVENT=" + string(event), "FXFER_JOB=" + job, "FXFER_TEXT=" + text}
		return runCommand(ctx, n.Command, n.Timeout, env, bytes.NewReader(body))
	}
	ctx, cancel := context.WithTimeout(ctx, n.Timeout)
	defer cancel()
	return n.post(ctx, body)
}

// webhooks sends requests and follows no redirects: headers and body are for the configured host
// alone.
var webhooks = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post sends the body to the webhook. The URL is a secret, so errors say no more of it than the
// host, and repeat nothing that the host said.
func (n *Notice) post(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.Webhook, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook's URL is invalid")
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range n.Headers {
		request.Header.Set(name, value)
	}
	host := request.URL.Host
	response, err := webhooks.Do(request)
	if whole := (*url.Error)(nil); errors.As(err, &whole) { // its text has the URL
		err = whole.Err
	}
	if err != nil {
		return fmt.Errorf("webhook at %s: %w", host, err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
	switch code := response.StatusCode; {
	case code >= http.StatusBadRequest:
		return fmt.Errorf("webhook at %s: status %d %s", host, code, http.StatusText(code))
	case code >= http.StatusMultipleChoices:
		return fmt.Errorf("webhook at %s: it redirects (status %d), which is not followed: use the final URL", host, code)
	}
	return nil
}
