package main

import (
	"slices"

	"pointsman"
)

// Policy admits so many requests at a time, in the order of arrival.
type Policy struct {
	maxRequests uint32
	inFlight    map[uint32]bool
	waiting     []uint32
}

func (p *Policy) Manifest() pointsman.Manifest {
	return pointsman.Manifest{
		Name:        "max-in-flight",
		Version:     "0.1.0",
		Description: "Admits so many requests at a time, in the order of arrival.",
	}
}

func (p *Policy) Parameters() []pointsman.Parameter {
	return []pointsman.Parameter{{
		Name:        "max_requests",
		Description: "The most requests in flight at a time.",
		Into:        &p.maxRequests,
		Min:         pointsman.Bound(1),
	}}
}

func (p *Policy) Configure(pointsman.Setup) error {
	p.inFlight = map[uint32]bool{}
	return nil
}

func (p *Policy) ClassifyReads() pointsman.Reads { return pointsman.Reads{} }

func (p *Policy) Classify(request *pointsman.ClassifyRequest) (*pointsman.Verdict, error) {
	if len(p.inFlight) < int(p.maxRequests) {
		p.inFlight[request.Ticket] = true
		return pointsman.Admit(), nil
	}
	p.waiting = append(p.waiting, request.Ticket)
	return nil, nil
}

func (p *Policy) OnEvent(event pointsman.Event, nowMs float64) ([]pointsman.Resolution, error) {
	if !event.Ended() {
		return nil, nil
	}
	if place := slices.Index(p.waiting, event.Ticket); place >= 0 {
		p.waiting = slices.Delete(p.waiting, place, place+1)
	}
	if !p.inFlight[event.Ticket] {
		return nil, nil
	}
	delete(p.inFlight, event.Ticket)
	if len(p.waiting) == 0 {
		return nil, nil
	}
	next := p.waiting[0]
	p.waiting = p.waiting[1:]
	p.inFlight[next] = true
	return []pointsman.Resolution{{Ticket: next, Verdict: pointsman.Admit()}}, nil
}

func main() {}
