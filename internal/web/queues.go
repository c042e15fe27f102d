package web

import "net/http"

// Queue is the queue of a share whose files are sent on.
type Queue struct {
	Share    string `json:"share"`
	URL      string `json:"url"` // without secrets
	Paused   bool   `json:"paused"`
	Error    string `json:"error"`  // why nothing is sent at the moment
	Unread   bool   `json:"-"`      // Error is about the queue itself: what follows is not known
	Oldest   int64  `json:"oldest"` // arrival of the oldest file that is not there yet, ms since 1970; 0 for none
	Arriving int    `json:"arriving"`
	Waiting  int    `json:"waiting"`
	Sending  int    `json:"sending"`
	There    int    `json:"there"`
	Failed   int    `json:"failed"` // of those that wait
	Dropped  int    `json:"dropped"`
}

func (p *Pages) queues() []Queue {
	if p.opt.Queues == nil {
		return nil
	}
	return p.opt.Queues()
}

func (p *Pages) sentOn(w http.ResponseWriter, _ *http.Request) {
	answer(w, append([]Queue{}, p.queues()...))
}
