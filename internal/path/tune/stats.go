package tune

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Summary describes the runs of one setting.
type Summary struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"` // 0 with fewer than two runs
}

func summarize(values []float64) (s Summary) {
	switch len(values) {
	case 0:
	case 1:
		s.Mean = values[0]
	default:
		s.Mean, s.SD = stat.MeanStdDev(values, nil)
	}
	return s
}

// Interval is the mean of paired differences and the interval that holds the true difference in 95 %
// of all experiments.
type Interval struct {
	Pairs int     `json:"pairs"`
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"` // valid from two pairs on, like High
	High  float64 `json:"high"`
}

// known reports whether there were enough pairs for an interval.
func (i *Interval) known() bool { return i.Pairs >= 2 }

// HoldsZero reports whether there may be no difference.
func (i *Interval) HoldsZero() bool { return !i.known() || i.Low <= 0 && i.High >= 0 }

// intervals returns an interval for each list of paired differences, by Student's t (1908). They
// hold together: the probability that any of them misses the truth is at most alpha. That is Holm's
// correction (Scandinavian Journal of Statistics 6, 1979): the k-th smallest p-value of m is compared
// with alpha/(m-k+1), up to the first that is larger. The intervals have these levels, so they hold
// 0 exactly where Holm's procedure does not reject.
func intervals(differences [][]float64, alpha float64) []Interval {
	all := make([]Interval, len(differences))
	p := make([]float64, len(differences))
	order := make([]int, len(differences))
	for i, d := range differences {
		order[i] = i
		all[i], p[i] = Interval{Pairs: len(d)}, 1
		if len(d) > 0 {
			all[i].Mean = stat.Mean(d, nil)
		}
		if len(d) >= 2 {
			p[i] = pValue(d)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	level, rejected := 0.0, true
	for k, i := range order {
		if rejected {
			level = alpha / float64(len(order)-k)
			rejected = p[i] <= level
		}
		if all[i].known() {
			half := halfWidth(differences[i], level)
			all[i].Low, all[i].High = all[i].Mean-half, all[i].Mean+half
		}
	}
	return all
}

// pValue is the probability of a mean that is as far from 0, or farther, if there is no difference.
// It needs two values.
func pValue(d []float64) float64 {
	mean, sd := stat.MeanStdDev(d, nil)
	if sd == 0 {
		if mean == 0 {
			return 1
		}
		return 0
	}
	return 2 * student(len(d)).Survival(math.Abs(mean)/(sd/math.Sqrt(float64(len(d)))))
}

// halfWidth is half of the interval of the mean of d at a level. It needs two values.
func halfWidth(d []float64, level float64) float64 {
	sd := stat.StdDev(d, nil)
	return -student(len(d)).Quantile(level/2) * sd / math.Sqrt(float64(len(d)))
}

func student(n int) distuv.StudentsT { return distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)} }
