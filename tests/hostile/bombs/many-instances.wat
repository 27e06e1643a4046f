;; attack: 1,000 instances of one empty module.
;; expect: load -> structure

;; in component:
(core module $empty)
;; repeat 1000: (core instance (instantiate $empty))
