;; attack: 5,000 names for one thing.
;; expect: load -> structure (aliases)

;; in component:
(core module $one (func (export "f")))
(core instance $one (instantiate $one))
;; repeat 5000: (alias core export $one "f" (core func))
