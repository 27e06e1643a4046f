;; attack: 2,000 core modules within the component.
;; expect: load -> structure (modules)

;; in component:
;; repeat 2000: (core module)
