;; attack: 1,000 instances of one empty module.
;; expect: load -> structure (core_instances)

;; in component:
(core module $empty)
;; repeat 1000: (core instance (instantiate $empty))
