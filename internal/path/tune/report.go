package tune

// Measure is what one run showed.
type Measure struct {
	Goodput   float64 `json:"goodput_bits_per_second"`
	SentAgain float64 `json:"sent_again"`          // share of the segments, 0 to 1
	Delay     float64 `json:"added_delay_seconds"` // median round trip during the run, less that before it
	CPU       float64 `json:"cpu_seconds_per_gb"`  // of this process; 0 is unknown
	RTT       float64 `json:"rtt_seconds"`         // least round trip before the run
	Seconds   float64 `json:"duration_seconds"`    // of the data
	Bytes     int64   `json:"bytes"`               // less than planned if the run took too long
}

// Trial is one run of a setting. Runs of the same round at the same server are compared.
type Trial struct {
	Round int `json:"round"` // from 1
	Measure
}

// Place is how a setting's goodput compares with that of the defaults.
type Place string

// The places, from the best.
const (
	Faster Place = "faster"
	Equal  Place = "equal" // the interval holds 0, or the difference is too small to matter
	Slower Place = "slower"
)

// Result is all that is known of one setting at one server.
type Result struct {
	Setting   Setting  `json:"setting"`
	Name      string   `json:"name"` // of the setting
	Place     Place    `json:"place"`
	Gentler   bool     `json:"gentler"` // Equal, and it sends less again or adds less delay
	Runs      []Trial  `json:"runs"`
	Goodput   Summary  `json:"goodput_bits_per_second"`
	Gain      Interval `json:"gain_bits_per_second"` // of goodput over the defaults
	SentAgain Summary  `json:"sent_again"`
	Delay     Summary  `json:"added_delay_seconds"`
	CPU       Summary  `json:"cpu_seconds_per_gb"`
	Failure   string   `json:"failure,omitempty"` // why it has no more runs

	failures int // in a row
}

// Defaults reports whether these are the results of the defaults.
func (r *Result) Defaults() bool { return r.Setting == Setting{} }

// better reports whether the defaults should give way to this setting.
func (r *Result) better() bool { return r.Place == Faster || r.Gentler }

// Server has the results of one server.
type Server struct {
	Name    string   `json:"server"`
	RTT     float64  `json:"rtt_seconds"`           // least, before any run
	BDP     float64  `json:"bdp_bytes"`             // from the warm-up
	Results []Result `json:"results"`               // the best first
	Best    *Setting `json:"best,omitempty"`        // nil: nothing was measured
	Differs bool     `json:"differs_from_defaults"` // whether any setting differs from the defaults
}

// Report is the result of an experiment.
type Report struct {
	Seed    uint64   `json:"seed"`
	Size    int64    `json:"size_bytes"` // of each run
	Asked   int64    `json:"asked_size_bytes"`
	Rounds  int      `json:"rounds"`
	Seconds float64  `json:"duration_seconds"`
	Servers []Server `json:"servers"`
	// Best is the best setting for all servers. nil: none is best for all.
	Best *Setting `json:"best,omitempty"`
	// Notes say what was left out, and why.
	Notes []string `json:"notes,omitempty"`
}

// Find returns the results of a setting, or nil.
func (s *Server) Find(setting Setting) *Result {
	for i := range s.Results {
		if s.Results[i].Setting == setting {
			return &s.Results[i]
		}
	}
	return nil
}
