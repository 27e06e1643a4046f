;; attack: 2,000 components within the component.
;; expect: load -> structure (components)

;; in component:
;; repeat 2000: (component)
