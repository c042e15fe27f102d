package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// assets are all files of the dashboard. It loads nothing from other sites.
//
//go:embed assets
var assets embed.FS

var assetTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// dashboard registers the pages for people.
func (p *Pages) dashboard(mux *http.ServeMux) {
	g := p.guard
	mux.Handle("GET /api/status", g.private(func(w http.ResponseWriter, _ *http.Request) { answer(w, viewOf(p.server)) }))
	mux.Handle("GET /api/totals", g.private(func(w http.ResponseWriter, _ *http.Request) { answer(w, p.feed.past()) }))
	mux.Handle("GET /api/events", g.private(p.events))
	mux.Handle("GET /api/history", g.private(p.history))
	mux.Handle("GET /api/clients", g.private(p.clients))
	mux.Handle("GET /api/jobs", g.private(p.backupJobs))
	mux.Handle("GET /api/queues", g.private(p.sentOn))
	mux.Handle("GET /api/transfers/{id}", g.private(p.transfer))
	mux.Handle("POST /api/transfers/{id}/cancel", g.private(p.cancel))
	mux.Handle("POST /api/transfers/{id}/priority/{priority}", g.private(p.prioritize))
	mux.Handle("POST /api/clients/{key}/revoke", g.private(p.revoke))
}

// page serves a page without data. Its scripts ask for the data, with the token.
func page(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			plain(w, http.StatusInternalServerError, "a page is missing")
			return
		}
		w.Header().Set("Content-Type", assetTypes[path.Ext(name)])
		_, _ = w.Write(text)
	}
}

// asset serves a script, style sheet or picture. Browsers revalidate it on each load and fetch it
// again only if it changed.
func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, err := fs.ReadFile(assets, "assets/"+name)
	kind := assetTypes[path.Ext(name)]
	if err != nil || kind == "" || path.Ext(name) == ".html" {
		plain(w, http.StatusNotFound, "page not found")
		return
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", kind)
	_, _ = w.Write(text)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (p *Pages) history(w http.ResponseWriter, _ *http.Request) {
	all := []transfer{}
	for _, x := range p.server.Past() {
		x.Timeline = nil
		all = append(all, transferOf(&x))
	}
	answer(w, all)
}

func (p *Pages) clients(w http.ResponseWriter, _ *http.Request) {
	known, err := p.server.Clients()
	v := struct {
		Clients []client `json:"clients"`
		Error   string   `json:"error,omitempty"`
	}{Clients: []client{}}
	for _, c := range known {
		v.Clients = append(v.Clients, client(c))
	}
	if err != nil {
		v.Error = err.Error()
	}
	answer(w, v)
}

func (p *Pages) transfer(w http.ResponseWriter, r *http.Request) {
	x, ok := p.server.Session(r.PathValue("id"))
	if !ok {
		plain(w, http.StatusNotFound, "this transfer no longer exists")
		return
	}
	answer(w, transferOf(&x))
}

func (p *Pages) cancel(w http.ResponseWriter, r *http.Request) {
	if !p.server.Cancel(r.PathValue("id")) {
		plain(w, http.StatusNotFound, "this transfer has ended already")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// prioritize sets the priority of a transfer. "auto" leaves it to the client and the settings.
func (p *Pages) prioritize(w http.ResponseWriter, r *http.Request) {
	to := fxfer.Priority(r.PathValue("priority"))
	if to == "auto" {
		to = ""
	}
	switch found, err := p.server.SetPriority(r.PathValue("id"), to); {
	case err != nil:
		plain(w, http.StatusBadRequest, err.Error())
	case !found:
		plain(w, http.StatusNotFound, "this transfer has ended already")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (p *Pages) revoke(w http.ResponseWriter, r *http.Request) {
	if err := p.server.Revoke(r.PathValue("key")); err != nil {
		plain(w, http.StatusBadRequest, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// events sends updates to a dashboard until it disconnects.
func (p *Pages) events(w http.ResponseWriter, r *http.Request) {
	told, leave := p.feed.read()
	if told == nil {
		plain(w, http.StatusServiceUnavailable, fmt.Sprintf("%d dashboards are open, and no more are allowed", maxReaders))
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	first, err := json.Marshal(viewOf(p.server))
	for ; err == nil; first = nil {
		text, more := first, true
		if text == nil {
			select {
			case <-r.Context().Done():
				return
			case text, more = <-told:
			}
		}
		if !more {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeWithin))
		if _, err = fmt.Fprintf(w, "data: %s\n\n", text); err == nil {
			err = out.Flush()
		}
	}
}
