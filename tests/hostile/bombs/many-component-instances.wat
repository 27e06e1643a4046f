;; attack: 1,000 instances of one component.
;; expect: load -> structure (component_instances)

;; in component:
(component $empty)
;; repeat 1000: (instance (instantiate $empty))
