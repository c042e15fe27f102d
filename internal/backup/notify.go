package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/command"
	"github.com/fxfer/fxfer/internal/webhook"
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
		return command.Run(ctx, n.Command, n.Timeout, env, bytes.NewReader(body))
	}
	ctx, cancel := context.WithTimeout(ctx, n.Timeout)
	defer cancel()
	return webhook.Post(ctx, n.Webhook, n.Headers, body)
}
