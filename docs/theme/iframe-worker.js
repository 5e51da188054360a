// Browsers start no workers for pages that are opened as files: there the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      const send = inner.postMessage.bind(inner);
      this.ready = new Promise((done) => (frame.onload = () => done(send)));
      window.addEventListener("message", (event) => {
        if (event.source !== inner) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      });
      inner.document.open();
      inner.document.write(
        "<script>window.postMessage = (data) => parent.postMessage(data, '*')<\/script>" +
          `<script src="${address}"><\/script>`
      );
      inner.document.close();
    }

    postMessage(data) {
      this.ready.then((send) => send(data, "*"));
    }
  };
}
