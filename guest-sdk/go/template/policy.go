package main

import "pointsman"

// Policy is what the policy keeps: one for each routing partition, from decision to decision.
type Policy struct {
	//[filter
	maxRequests uint32
	//]
}

func (p *Policy) Manifest() pointsman.Manifest {
	return pointsman.Manifest{
		Name:        "new-policy",
		Version:     "0.1.0",
		Description: "What the policy does, in one sentence.",
	}
}

func (p *Policy) Parameters() []pointsman.Parameter {
	//[filter
	p.maxRequests = 64
	return []pointsman.Parameter{{
		Name:        "max_requests",
		Description: "The active requests at which a worker gets no further one.",
		Optional:    true,
		Into:        &p.maxRequests,
		Min:         pointsman.Bound(1),
	}}
	//]
	//[no filter
	return nil
	//]
}

//[filter
func (p *Policy) FilterReads() pointsman.Reads {
	return pointsman.Reads{Signals: []string{"load.active-requests"}}
}

func (p *Policy) Filter(candidates *pointsman.Candidates, keep []bool) error {
	for row, requests := range candidates.Signal("load.active-requests") {
		keep[row] = requests < float64(p.maxRequests)
	}
	return nil
}

//]
//[score
func (p *Policy) ScoreReads() pointsman.Reads {
	return pointsman.Reads{Signals: []string{"load.active-requests"}}
}

func (p *Policy) Score(candidates *pointsman.Candidates, costs []float64) error {
	copy(costs, candidates.Signal("load.active-requests"))
	return nil
}

//]
//[pick
func (p *Policy) PickReads() pointsman.Reads {
	return pointsman.Reads{Signals: []string{"cost", "cache.overlap-blocks"}}
}

// Pick takes the lowest cost; of equals the worker with most of the prompt cached, of those the first.
func (p *Policy) Pick(candidates *pointsman.Candidates) (int, error) {
	cost, cached := candidates.Signal("cost"), candidates.Signal("cache.overlap-blocks")
	best := 0
	for row := range cost {
		if cost[row] < cost[best] || (cost[row] == cost[best] && cached[row] > cached[best]) {
			best = row
		}
	}
	return best, nil
}

//]
func main() {}
