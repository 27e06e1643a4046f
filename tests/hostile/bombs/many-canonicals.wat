;; attack: 5,000 functions lifted from one.
;; expect: load -> structure (canonicals)

;; in component:
(core module $one (func (export "f")))
(core instance $one (instantiate $one))
(alias core export $one "f" (core func $f))
;; repeat 5000: (func (canon lift (core func $f)))
