// Package server offers shares. It accepts connections, authenticates clients, runs their sessions
// within limits, and shows what goes on.
package server

import (
	"crypto/ed25519"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/door"
	"github.com/fxfer/fxfer/internal/door/ftp"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
)

// Server offers shares. New returns one that listens already. All methods may be called
// concurrently.
type Server struct {
	// Set by New.
	opt      Options // the settings that Reload can change are in live
	log      *slog.Logger
	store    *identity.Store
	key      ed25519.PrivateKey
	pair     *identity.KeyPair    // for clients that ask for a certificate; nil for none
	listen   []transport.Listener // TCP and QUIC, on one port
	doors    []*openDoor          // for clients of older protocols
	ftpPorts *ftp.Ports           // passive ports; nil for none
	host     string               // for messages only
	started  time.Time

	// Safe for concurrent use.
	conns    *connlimit.Limit
	counters *serverCounters
	in, out  pace.Pacer // share out the rates of what clients send and of what they get
	total    rateLimit  // of all sessions together
	guard    door.Guard // of passwords
	texts    door.Texts // of files that are sent on
	confined atomic.Bool
	called   chan transport.Conn // by Call, to be served as if they were accepted
	deaf     chan struct{}       // closed when no connection is taken any more

	// The present settings are replaced as a whole and never changed. Who replaces them holds
	// reloading, and mu while storing them.
	reloading sync.Mutex
	live      atomic.Pointer[liveSettings]

	entryMemory *transfer.Account
	openFiles   *transfer.OpenFiles

	mu           sync.Mutex // guards all fields below
	cond         *sync.Cond // on mu: sessions, recent or draining has changed
	serving      bool
	draining     bool
	slots        sessionSlots
	reservations map[*reservation]io.Closer // with their control streams
	clients      map[identity.Principal]*clientUse
	logins       map[identity.Principal]int // connections at doors
	atDoors      map[*doorSession]struct{}  // sessions there
	sessions     map[[16]byte]liveSession   // that data streams can join
	extraStreams int                        // data streams beyond the first of each session
	recent       recentSessions
}

// New opens the shares and listens. The caller calls Serve next.
func New(opt Options) (*Server, error) {
	s := &Server{
		opt: opt, log: opt.Log, started: time.Now(), counters: newServerCounters(),
		entryMemory:  transfer.NewAccount(entryMemory, nil),
		slots:        sessionSlots{byClient: make(map[identity.Principal]int)},
		reservations: make(map[*reservation]io.Closer),
		clients:      make(map[identity.Principal]*clientUse),
		logins:       make(map[identity.Principal]int),
		atDoors:      make(map[*doorSession]struct{}),
		sessions:     make(map[[16]byte]liveSession),
		called:       make(chan transport.Conn),
		deaf:         make(chan struct{}),
	}
	s.cond = sync.NewCond(&s.mu)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.host, _ = os.Hostname()
	err := s.opt.fill(disk.OpenFiles())
	if err != nil {
		return nil, err
	}
	s.openFiles = transfer.NewOpenFiles(filesOfTransfers(disk.OpenFiles()))
	if err := session.TestCrypto(opt.StandardCrypto); err != nil {
		return nil, err
	}
	s.conns = connlimit.New(s.opt.connections())
	if s.store, s.key, err = opt.openIdentity(); err != nil {
		return nil, err
	}
	if err := s.store.CheckAuthorized(); err != nil {
		s.log.Warn("some lines of authorized_clients can't be read", "error", err)
	}
	if err := s.openTLS(); err != nil {
		return nil, err
	}
	settings, err := s.openSettings(&opt, nil)
	if err != nil {
		return nil, err
	}
	s.apply(&opt, settings)
	if err := s.listenOn(opt.Listen); err != nil {
		s.closeShares()
		return nil, err
	}
	if err := s.openDoors(); err != nil {
		s.closeDoors()
		for _, l := range s.listen {
			_ = l.Close()
		}
		s.closeShares()
		return nil, err
	}
	return s, nil
}

func (s *Server) closeShares() {
	for _, share := range s.live.Load().shares {
		_ = share.folder.Close()
	}
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listen[0].Addr() }

// Pin returns the pin of the server's key, by which clients know it.
func (s *Server) Pin() string { return string(identity.PinOfPrivate(s.key)) }

// Home returns the folder of the server's key and lists, "" if the server is ephemeral.
func (s *Server) Home() string { return s.store.Dir() }

// Alive reports whether the server admits sessions. It does not return while the server hangs,
// which is what a watchdog must notice.
func (s *Server) Alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving && !s.draining
}
